"""The frame of a Perfetto trace, and GPU work in the terms of Kineto."""

from types import SimpleNamespace as Message
from typing import Any

import pytest
from etplus.schemas.perfetto import packets as module
from etplus.schemas.perfetto.packets import COMPUTE, args_of_stage, category_of_stage, field_tags, packets, text_of
from etplus.schemas.wire_format import delimited_field, varint_bytes
from etplus.trace.errors import TraceFormatError
from hypothesis import given
from hypothesis import strategies as st

pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
TRACE = b"\x0a\x02ab" + b"\x0a\x00" + b"\x0a\x81\x01" + b"c" * 129


def test_packets_are_found_with_their_offsets_in_any_window(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [(2, b"ab"), (6, b""), (9, b"c" * 129)]
    assert list(packets(TRACE, "x")) == expected and list(packets(b"", "x")) == []
    for window in (20, 32, 140):
        monkeypatch.setattr(module, "_WINDOW", window)
        assert list(packets(TRACE, "x")) == expected
        assert list(packets(b"\x0a\x02ab" * 40, "x")) == [(at, b"ab") for at in range(2, 160, 4)]


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        (TRACE + b"\x12", "byte 138", "expected the start"), (TRACE[:-1], "byte 6", "cut off"),
        (TRACE + b"\x0a", "byte 138", "cut off"), (b"\x0a\x80", "byte 0", "cut off"),
    ],
)  # fmt: skip
def test_broken_packets_are_refused_with_their_byte_offset(text: bytes, place: str, problem: str) -> None:
    with pytest.raises(TraceFormatError, match=problem) as error:
        list(packets(text, "x"))
    assert place in str(error.value)


def test_packets_larger_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LARGEST", 129)
    assert len(list(packets(TRACE, "x"))) == 3
    monkeypatch.setattr(module, "_LARGEST", 128)
    with pytest.raises(TraceFormatError, match="a packet has 129"):
        list(packets(TRACE, "x"))


def test_stages_get_kineto_categories_and_bad_bytes_are_replaced() -> None:
    stages = (("Memcpy", 0), ("x", COMPUTE), ("x", 1), ("Kernel", 0))
    assert [category_of_stage(*stage) for stage in stages] == ["gpu_memcpy", "kernel", "", "kernel"]
    assert (text_of("a"), text_of(b"a\xff")) == ("a", "a\ufffd")


def stage(extra: dict[str, str], launch: Any = None) -> Any:
    data = [Message(name=name, value=value) for name, value in extra.items()]
    return Message(
        gpu_id=3, extra_data=data, launch=launch, HasField=lambda name: name == "launch" and launch is not None
    )


def test_numbers_are_those_that_look_like_one_and_are_no_texts() -> None:
    extra = {"stream id": "7", "bytes": "-12", "dtype": "8", "big": "1" * 19, "half": "0.5", "device id": "1"}
    assert args_of_stage(stage(extra), {}) == {
        "device": 1, "stream": 7, "bytes": -12, "dtype": "8", "big": "1" * 19, "half": "0.5",
    }  # fmt: skip


def test_stage_arguments_become_grid_block_registers_and_shared_memory() -> None:
    sizes = {"grid_size": Message(x=1, y=2, z=3), "workgroup_size": Message(x=4, y=5, z=6)}
    args = [Message(name_iid=iid, uint_value=10 * iid) for iid in (1, 2, 3)]
    names = {1: "registers_per_thread", 2: "shared_mem_dynamic"}
    assert args_of_stage(stage({}, Message(args=args, **sizes)), names) == {
        "device": 3, "grid": [1, 2, 3], "block": [4, 5, 6], "registers per thread": 10, "shared memory": 20,
    }  # fmt: skip


# Fields as protobuf itself writes them

INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 127, 128, 2**14 - 1, 2**14, 2**28, -1, -(2**63)])


@given(INT64)
def test_varints_and_flow_ids_are_encoded_as_protobuf_does(number: int) -> None:
    written = field_tags("DebugAnnotation")["int_value"] + varint_bytes(number)
    assert written == pb2.DebugAnnotation(int_value=number).SerializeToString()
    written = field_tags("TrackEvent")["flow_ids"] + (number % 2**64).to_bytes(8, "little")
    assert written == pb2.TrackEvent(flow_ids=[number % 2**64]).SerializeToString()


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 16_384, 100_000])
def test_texts_of_any_length_are_encoded_as_protobuf_does(length: int) -> None:
    extra = pb2.GpuRenderStageEvent.ExtraData(name="x" * length)
    written = delimited_field(field_tags("GpuRenderStageEvent.ExtraData")["name"], b"x" * length)
    assert written == extra.SerializeToString()
    stage = delimited_field(field_tags("GpuRenderStageEvent")["extra_data"], written)
    assert stage == pb2.GpuRenderStageEvent(extra_data=[extra]).SerializeToString()
