"""Pages and texts are, line by line, what they were when last looked at (tests/goldens.py).

They cover report.diff_text, report.findings_text, report.flame, report.packed, report.part_report, report.report_html,
report.report_text, report.timeline, report.timeline_lanes, report.top_text.
"""

import pytest
from goldens import cases, differences


@pytest.mark.parametrize(("folder", "name"), cases("report"))
def test_a_page_and_the_texts_show_what_they_showed(folder: str, name: str) -> None:
    assert not differences(folder, name)[:3]
