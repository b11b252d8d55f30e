"""Sequences of kernels of a small trace, counted by hand."""

from etplus.analysis.modules import KernelSequence, kernel_sequences
from made_traces import kernel, launch, op, traced


def test_calls_of_one_operator_with_equal_kernel_sequences_share_a_row() -> None:
    """Calls of 20 µs, each with an operator inside that launches kernels (of 1, 2, 3, … µs)."""
    sequences = ("a", "xyz"), ("b", "xyz"), ("a", "xyz"), ("a", "xzy"), ("a", "xy"), ("c", "xxxx")
    events, number = [kernel("lost", 99, 2000, 5)], 0
    for at, (name, kernels) in enumerate(sequences):
        events += [op(f"aten::{name}", 100 * at, 20), op("aten::inner", 100 * at + 1, 18)]
        for place, letter in enumerate(kernels):
            number += 1
            events += [launch(number, 100 * at + 2 + place, 0.5)]
            events += [kernel(letter, number, 100 * at + 30 + 10 * place, place + 1)]
    trace = traced(events)
    xyz = ("x", "y", "z")
    longer = [
        KernelSequence("aten::a", xyz, 2, 12_000, 40_000), KernelSequence("aten::c", ("x",) * 4, 1, 10_000, 20_000),
        KernelSequence("aten::a", ("x", "z", "y"), 1, 6_000, 20_000), KernelSequence("aten::b", xyz, 1, 6_000, 20_000),
    ]  # fmt: skip
    found = kernel_sequences(trace)
    assert found[:2] == longer[:2] and sorted(found[2:], key=str) == sorted(longer[2:], key=str)
    assert found[2].op == "aten::a" and found[0].above() == "aten::a: x, y, z"
    shorter = KernelSequence("aten::a", ("x", "y"), 1, 3_000, 20_000)
    assert kernel_sequences(trace, least=2) == [*found, shorter] and kernel_sequences(trace, least=5) == []
    assert kernel_sequences(trace, least=4) == longer[1:2]
