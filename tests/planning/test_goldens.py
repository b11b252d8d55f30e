"""Calls, shapes and layouts are, line by line, what they were when somebody last looked at them (tests/goldens.py).

They cover edge_latencies, end_to_end, expert_calls, expert_regions, followed_calls, joined_stages,
kernel_model, layer_rules, made_records, measured_models, not_derived, planning.costs.fitting, planning.costs.pricing,
planning.costs.registry, planning.costs.task, planning.costs.utilization,
planning.reshape.reshape, planning.reshape.shapes.extents, planning.reshape.shapes.terms, planning.reshard.blocks,
planning.reshard.buffers, planning.reshard.clipping, planning.reshard.derivation, planning.reshard.experts,
planning.reshard.explain, planning.reshard.items, planning.reshard.job, planning.reshard.layout,
planning.reshard.memory, planning.reshard.model, planning.reshard.plan, planning.reshard.proof,
planning.reshard.structure, planning.reshard.units, planning.reshard.weights, planning.reshard.wraps, rank_job,
rank_program, rank_trace, resized_calls, shape_change, stage_steps, step_calls, tensor_rules.
"""

import pytest
from goldens import cases, differences


@pytest.mark.parametrize(("folder", "name"), cases("rules", "reshape", "layouts", "reshard", "costs"))
def test_planning_makes_of_a_recording_what_it_made(folder: str, name: str) -> None:
    assert not differences(folder, name)[:3]
