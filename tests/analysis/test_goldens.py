"""Tables, findings and comparisons are, line by line, what they were when last looked at (tests/goldens.py).

They cover analysis.attention, analysis.bandwidth, analysis.breakdown, analysis.convolutions, analysis.counters,
analysis.device_memory, analysis.event_frames, analysis.event_relations, analysis.event_work, analysis.experts,
analysis.findings.builtin, analysis.findings.case, analysis.findings.communication_findings,
analysis.findings.eager_attention, analysis.findings.find, analysis.findings.finding, analysis.findings.fusable,
analysis.findings.host, analysis.findings.host_work, analysis.findings.layouts, analysis.findings.like_work,
analysis.findings.memory_use, analysis.findings.precision, analysis.findings.products, analysis.findings.proofs,
analysis.findings.rank_times, analysis.findings.recording_gaps, analysis.findings.serving_findings,
analysis.findings.small_operators, analysis.findings.step_outliers, analysis.findings.stragglers,
analysis.findings.trace_changes, analysis.findings.work_items, analysis.flops, analysis.job_diff, analysis.job_summary,
analysis.kernel_peaks, analysis.launch_queues, analysis.modules, analysis.operator_outputs, analysis.origins,
analysis.place_diff, analysis.serving, analysis.serving_steps, analysis.storages, analysis.summary, analysis.top,
analysis.trace_diff, analysis.devices, analysis.table, analysis.questions.served_traces, analysis.questions.tools.
"""

import pytest
from goldens import cases, differences


@pytest.mark.parametrize(("folder", "name"), cases("analysis", "findings", "work"))
def test_analyses_equal_their_golden_files(folder: str, name: str) -> None:
    assert not differences(folder, name)[:3]
