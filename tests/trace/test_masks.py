"""Rows by name and category, against one look at every row."""

from __future__ import annotations

import numpy as np
from etplus.schemas.communications import comm_rows
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.columns import matching
from etplus.trace.comm_kernels import is_comm_kernel
from etplus.trace.kinds import GPU
from hypothesis import given
from hypothesis import strategies as st
from support import linked


@given(st.lists(st.text("ab", max_size=2), unique=True), st.lists(st.integers(0, 50)))
def test_matching(values: list[str], numbers: list[int]) -> None:
    codes = np.array([n % len(values) for n in numbers] if values else [], np.int32)
    found = matching(codes, values, lambda value: value.startswith("a"))
    assert found.dtype == np.bool_ and found.tolist() == [values[code].startswith("a") for code in codes]


def test_communication_kernels_have_one_rule() -> None:
    trace = linked("gpu-pairs/dlrm.rank1")
    rows = [
        trace.nodes.kind[row] == GPU and (row in trace.comm or is_comm_kernel(trace.name_of(row)))
        for row in range(len(trace))
    ]
    assert trace.communicates.tolist() == rows
    assert trace.is_comm.tolist() == trace.communicates[trace.gpu.source].tolist()
    assert set(np.flatnonzero(trace.communicates & trace.nodes.timed)) <= set(comm_rows(trace))


def test_a_kernel_of_an_unusual_name_communicates_where_the_file_says_so() -> None:
    trace = linked("gpu-pairs/dlrm.rank1")
    text = b"".join(trace.chunks())
    for name in {trace.name_of(row) for row in np.flatnonzero(trace.communicates).tolist()}:
        text = text.replace(f'"{name}"'.encode(), b'"odd kernel"')
    renamed = read_etplus(text)
    found = np.flatnonzero(renamed.communicates).tolist()
    assert found == np.flatnonzero(trace.communicates).tolist()
    assert {renamed.name_of(row) for row in found} == {"odd kernel"}
