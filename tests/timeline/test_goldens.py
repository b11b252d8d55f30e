"""Replays are, line by line, what they were when last looked at (tests/goldens.py).

They cover timeline.beside_transfers, timeline.collective_times, timeline.constants, timeline.critical,
timeline.graph_building, timeline.graph_changes, timeline.graph_events, timeline.graph_replay, timeline.host_backends,
timeline.iterations, timeline.meant_rows, timeline.network, timeline.network_description, timeline.network_file,
timeline.predicted_graph, timeline.rank_coupling, timeline.replay_graph, timeline.replay_ranks,
timeline.replay_summary, timeline.replay_text, timeline.shared_links, timeline.thread_edges,
timeline.topological_order, timeline.untraced, timeline.whatif.
"""

import pytest
from goldens import cases, differences


@pytest.mark.parametrize(("folder", "name"), cases("timeline", "networks"))
def test_a_replay_equals_its_golden_result(folder: str, name: str) -> None:
    assert not differences(folder, name)[:3]
