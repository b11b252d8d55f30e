"""Time and work of replayed graphs by the operators of the capture."""

from __future__ import annotations

from collections import Counter

from captured import capture_events, encode, replay_events
from etplus import link
from etplus.converters.npz import NODE_NAMES, graph_arrays

LAUNCHES = [("gemm_1", "aten::mm"), ("relu", "aten::relu"), ("gemm_2", "aten::mm")]
FILES = ("replay", "capture")


def events() -> list[dict]:
    found = capture_events([LAUNCHES])
    for event in found:
        if event["name"] == "aten::mm":
            event["args"] |= {"Input Dims": [[8, 16], [16, 32]], "Input type": ["float", "float"]}
    return found


def test_each_replay_has_the_flops_of_its_operators() -> None:
    replays = [[(name, 7) for name, _ in LAUNCHES]] * 3
    analysis = link(None, encode(replay_events(replays)), graph_captures=[encode(events())]).analyze()
    flops = [int(one) for one in analysis.work.flops.tolist() if one >= 0]
    assert flops == [2 * 8 * 16 * 32] * 6
    ops = Counter(op for row in analysis.breakdown for op in [row.op] * row.count)
    assert ops == {"aten::mm": 6, "aten::relu": 3}
    assert {row.modules for row in analysis.breakdown} == {("nn.Module: Layer_0",)}


def test_arrays_have_the_signatures_of_the_capture() -> None:
    replay = encode(replay_events([[(name, 7) for name, _ in LAUNCHES]]))
    plain, linked = link(None, replay), link(None, replay, graph_captures=[encode(events())])
    column = NODE_NAMES.index("has signature")
    assert graph_arrays(plain).node_feat[:, column].sum() == 0
    assert graph_arrays(linked).node_feat[:, column].sum() == len(LAUNCHES)
