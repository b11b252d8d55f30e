"""Read the packets of a Perfetto trace, and convert its render stages to Kineto's GPU events."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field

from ...trace.errors import TraceFormatError, UsageError
from ..text.memory_limit import size_text
from ..text.sniff import varint
from ..text.text import Text
from ..wire_format import DELIMITED, FIXED64, VARINT, varint_bytes

_PACKET = 0x0A  # tag of the field `packet` in the message Trace (protos/perfetto/trace/trace.proto)
_WINDOW = 1 << 20
_LARGEST = 1 << 28  # maximum size of a packet in bytes; real packets have a few kB
_AGAIN = "record it again"


@cache
def protos() -> Any:
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError:
        raise UsageError("Perfetto traces need the package perfetto; run: pip install 'etplus[perfetto]'") from None
    return perfetto_trace_pb2


def text_of(field: str | bytes) -> str:
    """Return a text field as a string; protobuf returns invalid UTF-8 as bytes."""
    return field if isinstance(field, str) else field.decode("utf-8", "replace")


def packets(text: Text, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and bytes of each packet in a decompressed trace. Error messages contain `name`."""
    window, first, at, end = text[:_WINDOW], 0, 0, len(text)
    while at < end:
        if at - first + 16 > len(window):
            window, first = text[at : at + _WINDOW], at
        if window[at - first] != _PACKET:
            raise TraceFormatError(name, f"byte {at}", "expected the start of a Perfetto packet", _AGAIN)
        size, body = varint(window, at - first + 1)
        begin = first + body
        if body < 0 or begin + size > end:
            raise TraceFormatError(name, f"byte {at}", "the Perfetto trace is cut off inside a packet", _AGAIN)
        if size > _LARGEST:
            problem = f"a packet has {size_text(size)}, more than the maximum of {size_text(_LARGEST)}"
            raise TraceFormatError(name, f"byte {at}", problem, _AGAIN)
        if begin + size > first + len(window):
            window, first = text[begin : begin + max(size, _WINDOW)], begin
        yield begin, window[begin - first : begin - first + size]
        at = begin + size


# Maps names of render stages to Kineto's categories.
CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Annotation": "gpu_user_annotation",
    "EventRecord": "graph_event_node",
    "HostNode": "graph_host_node",
}
COMPUTE = 2  # Programs other than etplus write this RenderStageCategory in an InternedGpuRenderStageSpecification.
_WRITTEN = {"device id": "device", "context id": "context", "stream id": "stream"}
_LAUNCH = {"registers_per_thread": "registers per thread", "shared_mem_dynamic": "shared memory"}
# These arguments stay strings even if they look like numbers, because the format stores every value as a string.
_TEXTS = frozenset(
    (
        "Collective name,Process Group Description,Process Group Name,Process Group Ranks,annotation,arch,dtype,"
        "host fn,process_name"
    ).split(",")
)
_INTEGER = re.compile(r"-?\d{1,18}")


def category_of_stage(name: str, category: int) -> str:
    return CATEGORIES.get(name, "kernel" if category == COMPUTE else "")


def args_of_stage(stage: Any, names: Mapping[int, str]) -> dict[str, Any]:
    """Return the arguments of an event by Kineto's names. `names` maps interned ids to names of launch arguments."""
    args: dict[str, Any] = {"device": stage.gpu_id}
    for extra in stage.extra_data:
        name, value = text_of(extra.name), text_of(extra.value)
        number = name not in _TEXTS and _INTEGER.fullmatch(value)
        args[_WRITTEN.get(name, name)] = int(value) if number else value
    if stage.HasField("launch"):
        launch = stage.launch
        for axis, size in (("grid", launch.grid_size), ("block", launch.workgroup_size)):
            args[axis] = [size.x, size.y, size.z]
        for given in launch.args:
            written = names.get(given.name_iid, "")
            if written in _LAUNCH:
                args[_LAUNCH[written]] = given.uint_value
    return args


@cache
def field_tags(message: str) -> dict[str, bytes]:
    """Map each field of a Perfetto message to its tag. `message` may be the name of a nested message ("A.B")."""
    found = protos()
    for name in message.split("."):
        found = getattr(found, name)
    wire = dict.fromkeys((Field.TYPE_DOUBLE, Field.TYPE_FIXED64), FIXED64)
    wire |= dict.fromkeys((Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE), DELIMITED)
    fields = found.DESCRIPTOR.fields
    return {field.name: varint_bytes(field.number << 3 | wire.get(field.type, VARINT)) for field in fields}
