"""Sections of ET+ files, column by column."""

import numpy as np
import orjson
import pytest
from etplus.schemas.etplus.sections import generated_section, read_generated, read_memory
from etplus.trace.columns import IntColumn
from etplus.trace.errors import TraceFormatError
from etplus.trace.generated import GeneratedKernel, GeneratedKernels
from etplus.trace.index import as_positions

IDS: IntColumn = np.array([5, 7, 9])


def test_memory_events_are_in_order_of_time_below_their_operators() -> None:
    found = read_memory("x", orjson.dumps([[9.5, 64, 1, 2, 3, 1, 0, 7, 4], [2, -64, 1, 0, 3, 0, -1, None, 8]]), IDS)
    assert {name: column.tolist() for name, column in vars(found).items()} == {
        "ts": [2000, 9500], "bytes": [-64, 64], "address": [1, 1], "allocated": [0, 2], "reserved": [3, 3],
        "device_type": [0, 1], "device": [-1, 0], "row": [-1, 1], "kineto_event": [8, 4],
    }  # fmt: skip
    assert len(read_memory("x", b"[]", IDS)) == 0


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [(0, -1, "out of range"), (1, 2**53, "out of range"), (2, 2**63, "beyond 64 bits"), (7, "x", "cannot be read")],
)
def test_memory_events_with_impossible_numbers_are_refused(place: int, value: object, problem: str) -> None:
    record: list[object] = [1, 1, 1, 1, 1, 1, 1, None, 1]
    record[place] = value
    with pytest.raises(TraceFormatError, match=f'"memory".*{problem}'):
        read_memory("x", orjson.dumps([record]), IDS)


def test_generated_kernels_are_read_back_and_bad_sections_refused() -> None:
    made = GeneratedKernels(
        (GeneratedKernel("t", nodes=("mul",)), GeneratedKernel("mm")), as_positions([0, 2]), IDS[:0]
    )
    made = GeneratedKernels(made.kernels, made.row, np.array([1, 0]))
    for text in (generated_section(made, IDS[made.row]), b'{"kernels":[{"name":"t","nodes":["mul"]},{"name":"mm"}],'
                 b'"id":[9,5],"kernel":[0,1]}'):  # fmt: skip
        found = read_generated("x", text, IDS)
        assert found.kernels == made.kernels
        assert (found.row.tolist(), found.kernel.tolist()) == ([0, 2], [1, 0])
    assert len(read_generated("x", b"null", IDS).row) == 0
    for broken in (b'"id":[6],"kernel":[0]', b'"id":[5],"kernel":[1]', b'"id":[5],"kernel":[]'):
        with pytest.raises(TraceFormatError, match="unknown id or kernel"):
            read_generated("x", b'{"kernels":[{"name":"t"}],%b}' % broken, IDS)
