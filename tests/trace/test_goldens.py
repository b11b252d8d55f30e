"""Files are read, column by column, as when last looked at (tests/goldens.py).

They cover trace.brief, trace.build, trace.call_tree, trace.captured, trace.columns, trace.comm_kernels,
trace.conventions, trace.counterparts, trace.derive, trace.dtypes, trace.errors, trace.find_steps, trace.frames,
trace.generated, trace.hierarchy, trace.host_waits, trace.index, trace.intervals, trace.kernel_kinds,
trace.kernel_names, trace.kinds, trace.library, trace.link_report, trace.node_texts, trace.nodes, trace.origin,
trace.outer, trace.plugins, trace.printable, trace.root_facts, trace.selection, trace.stacks, trace.step_annotations,
trace.steps, trace.suggest, trace.tables, trace.tensors, trace.text_tables, trace.thread_activity, trace.trace,
trace.unattached, trace.views.
"""

import pytest
from goldens import cases, differences


@pytest.mark.parametrize(("folder", "name"), cases("reading")[:2])
def test_reading_a_file_gives_the_lines_of_its_golden_file(folder: str, name: str) -> None:
    assert not differences(folder, name)[:3]
