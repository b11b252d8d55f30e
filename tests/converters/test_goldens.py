"""Conversions write, line by line, what they wrote when last looked at (tests/goldens.py).

They cover converters.astra_config, converters.astra_gpu_only, converters.astra_links, converters.astra_nodes,
converters.astra_run, converters.astra_sim, converters.augment, converters.builtin, converters.chakra,
converters.chakra_copy, converters.chrome, converters.collectives, converters.conversion, converters.exporter,
converters.folder, converters.goal, converters.graph, converters.host_timeline, converters.node_work, converters.npz,
converters.open, converters.pftrace, converters.preflight, converters.preflight_findings, converters.preflight_match,
converters.preflight_rank, converters.preflight_run, converters.registry, converters.row_dependencies,
converters.traces.
"""

import pytest
from goldens import cases, differences


@pytest.mark.parametrize(("folder", "name"), cases("converting", "checking"))
def test_conversions_equal_their_golden_files(folder: str, name: str) -> None:
    assert not differences(folder, name)[:3]
