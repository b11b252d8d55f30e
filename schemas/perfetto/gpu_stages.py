"""GPU work in a Perfetto trace: render stages, as PyTorch's Cuspy exporter writes them, in the terms of Kineto."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .packets import text_of

if TYPE_CHECKING:
    from .read_perfetto import PacketSequence

CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Annotation": "gpu_user_annotation",
    "EventRecord": "graph_event_node",
    "HostNode": "graph_host_node",
}
"""Category in a Kineto trace by the name of the stage."""
COMPUTE = 2
"""InternedGpuRenderStageSpecification.RenderStageCategory; work of other writers."""
_NAMES = {"device id": "device", "context id": "context", "stream id": "stream"}
_LAUNCH = {"registers_per_thread": "registers per thread", "shared_mem_dynamic": "shared memory"}
_TEXTS = frozenset({
    "Collective name", "Process Group Description", "Process Group Name", "Process Group Ranks", "annotation", "arch",
    "dtype", "host fn", "process_name",
})  # fmt: skip
"""Extra data that are texts even if they look like numbers; all values are texts in the format."""
_INTEGER = re.compile(r"-?\d{1,18}")


def category_of_stage(name: str, category: int) -> str:
    """The Kineto category of work on a stage, "" for an unknown one."""
    return CATEGORIES.get(name, "kernel" if category == COMPUTE else "")


def args_of_stage(stage: Any, sequence: PacketSequence) -> dict[str, Any]:
    """The arguments of an event, with Kineto's names."""
    args: dict[str, Any] = {"device": stage.gpu_id}
    for extra in stage.extra_data:
        name, value = text_of(extra.name), text_of(extra.value)
        number = name not in _TEXTS and _INTEGER.fullmatch(value)
        args[_NAMES.get(name, name)] = int(value) if number else value
    if stage.HasField("launch"):
        launch = stage.launch
        for axis, size in (("grid", launch.grid_size), ("block", launch.workgroup_size)):
            args[axis] = [size.x, size.y, size.z]
        for one in launch.args:
            written = sequence.arguments.get(one.name_iid, "")
            if written in _LAUNCH:
                args[_LAUNCH[written]] = one.uint_value
    return args
