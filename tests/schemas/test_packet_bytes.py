"""Fields as protobuf itself writes them."""

from __future__ import annotations

import pytest
from etplus.schemas.perfetto.packets import field_tags
from etplus.schemas.wire_format import delimited_field, varint_bytes
from hypothesis import given
from hypothesis import strategies as st

pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 127, 128, 2**14 - 1, 2**14, 2**28, -1, -(2**63)])


@given(INT64)
def test_numbers(number: int) -> None:
    written = field_tags("DebugAnnotation")["int_value"] + varint_bytes(number)
    assert written == pb2.DebugAnnotation(int_value=number).SerializeToString()


@given(st.integers(0, 2**64 - 1))
def test_numbers_without_a_sign(number: int) -> None:
    assert (
        field_tags("TracePacket")["timestamp"] + varint_bytes(number)
        == pb2.TracePacket(timestamp=number).SerializeToString()
    )


@given(st.integers(0, 2**64 - 1))
def test_eight_bytes(number: int) -> None:
    written = field_tags("TrackEvent")["flow_ids"] + number.to_bytes(8, "little")
    assert written == pb2.TrackEvent(flow_ids=[number]).SerializeToString()


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 16_384, 100_000])
def test_texts(length: int) -> None:
    extra = pb2.GpuRenderStageEvent.ExtraData(name="x" * length)
    written = delimited_field(field_tags("GpuRenderStageEvent.ExtraData")["name"], b"x" * length)
    assert written == extra.SerializeToString()
    stage = delimited_field(field_tags("GpuRenderStageEvent")["extra_data"], written)
    assert stage == pb2.GpuRenderStageEvent(extra_data=[extra]).SerializeToString()
