"""What Inductor says of the kernels of compiled graphs: `kernel_information.json`, and the mappings of their nodes.

Kernel information is what `torch._inductor.debug.get_kernel_information_jsons()` returns (PyTorch 2.14): by region and
direction, `"('Torch-Compiled Region: 0/0', False)"`, an object by kernel name, a colon, and the kernel's handle, which
numbers the calls of the generated code. Some versions give the stacks alone in place of the kernel's object. Graphs
whose backward is compiled late have the kernels of those compiled before them as well, with smaller handles.

`inductor_provenance_tracking_node_mappings.json` has the same names and handles, and of each kernel the nodes that it
was made of, without their stacks; it does not say of which region it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from ...trace.errors import UNREADABLE, TraceFormatError
from ..text.files import Source, load
from .source_frames import Frames, frames_of_traceback

_REGION = re.compile(r"""\((['"])(.*)\1, (True|False)\)""", re.DOTALL)
_REMEDY = "give the file that torch._inductor.debug.get_kernel_information_jsons() was written to"
_MAPPING_REMEDY = "give inductor_provenance_tracking_node_mappings.json of a folder of torch._inductor.config.trace"
_DIRECTION = re.compile(r"(?:^|[._])(?:\d+_)?(forward|backward|inference)(?=[._]|$)")


@dataclass(frozen=True)
class CompiledKernel:
    """A call of generated code: of a kernel that Inductor wrote, or of one that it leaves to an operator.

    Attributes:
        name: "triton_poi_fused_gelu_1", "extern_kernels.addmm", "torch.ops.aten.sort.default".
        handle: of the call; ascending in the order of calls.
        stacks: those of its source nodes, in their order, equal ones once.
        nodes: names of the source nodes that it was made of, as in the graph before autograd.
        shapes: of an operator's tensor inputs; None where they are not recorded, or not all numbers.
    """

    name: str
    handle: int
    stacks: tuple[Frames, ...] = ()
    nodes: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class CompiledGraph:
    """The kernels of a compiled graph, in order of their handles.

    Attributes:
        region: "Torch-Compiled Region: 0/0", "" where the file does not say it.
        backward: it is the backward of that region; None where the file does not say it.
        kernels: with those of graphs that were compiled before it, if the file has them, too.
        file: that says so.
    """

    region: str
    backward: bool | None
    kernels: tuple[CompiledKernel, ...]
    file: str


class _Kernel(msgspec.Struct, gc=False):
    stack_traces: list[str] = []
    pre_grad_nodes: list[str] = []
    post_grad_nodes: list[str] = []
    input_shapes: list[list[Any]] | None = None


_Given = dict[str, dict[str, _Kernel | list[str] | None]]


class _Mappings(msgspec.Struct, gc=False):
    cppCodeToPost: dict[str, list[str]]
    postToPre: dict[str, list[str]] = {}


def read_kernel_information(source: Source) -> tuple[CompiledGraph, ...]:
    """Read kernel information, gzipped or not.

    Raises:
        TraceFormatError: the file is not of that form.

    Example:
        >>> kernel = b'{"stack_traces": ["File \\\\"a.py\\\\", line 3, in f"], "pre_grad_nodes": ["gelu"]}'
        >>> text = b'''{"('Torch-Compiled Region: 0/0', True)": {"cpp_fused_gelu_1:3": ''' + kernel + b"}}"
        >>> (graph,) = read_kernel_information(text)
        >>> graph.region, graph.backward, graph.kernels[0].handle, graph.kernels[0].stacks
        ('Torch-Compiled Region: 0/0', True, 3, (('a.py(3): f',),))
    """
    blob = load(source, trace=False)
    try:
        given = msgspec.json.decode(blob.data, type=_Given)
    except UNREADABLE as error:
        raise TraceFormatError(blob.name, "", f"is no kernel information of Inductor ({error})", _REMEDY) from None
    graphs = []
    for key, kernels in given.items():
        found = _REGION.fullmatch(key)
        if found is None:
            raise TraceFormatError(blob.name, f"key {key[:80]!r}", "is no compiled region and direction", _REMEDY)
        made = [
            _kernel(name, _Kernel(kernel) if isinstance(kernel, list) else kernel) for name, kernel in kernels.items()
        ]
        graphs.append(CompiledGraph(found[2], found[3] == "True", _in_order(made), blob.name))
    return tuple(graphs)


def read_node_mappings(source: Source) -> CompiledGraph:
    """Read the mappings of the nodes of one graph, gzipped or not; its direction is known by the file's or its
    folder's name (`model__0_forward_1.0`) alone.

    Raises:
        TraceFormatError: the file is not of that form.

    Example:
        >>> to_pre = b'"postToPre": {"mul": ["gelu"], "erf": ["gelu"]}'
        >>> text = b'{"cppCodeToPost": {"cpp_fused_gelu_0:2": ["mul", "erf"]}, ' + to_pre + b"}"
        >>> read_node_mappings(text).kernels
        (CompiledKernel(name='cpp_fused_gelu_0', handle=2, stacks=(), nodes=('gelu',), shapes=None),)
    """
    blob = load(source, trace=False)
    try:
        given = msgspec.json.decode(blob.data, type=_Mappings)
    except UNREADABLE as error:
        raise TraceFormatError(blob.name, "", f"has no mappings of nodes ({error})", _MAPPING_REMEDY) from None
    made = [
        _kernel(name, _Kernel(pre_grad_nodes=[pre for node in nodes for pre in given.postToPre.get(node, ())]))
        for name, nodes in given.cppCodeToPost.items()
    ]
    found = _DIRECTION.findall("_".join(re.split(r"[/\\]", blob.name)[-2:]))
    return CompiledGraph("", found[-1] == "backward" if found else None, _in_order(made), blob.name)


def _kernel(key: str, given: _Kernel | None) -> CompiledKernel | None:
    """The kernel of a name with a handle, None for another name: Inductor gives some kernels twice, once without."""
    name, _, handle = key.rpartition(":")
    if not name or not (handle.isascii() and handle.isdecimal()) or len(handle) > 9:
        return None
    given = given or _Kernel()
    stacks = (frames_of_traceback(text) for text in given.stack_traces)
    shapes = given.input_shapes
    known = shapes is not None and all(type(size) is int for shape in shapes for size in shape)
    return CompiledKernel(
        name, int(handle), tuple(dict.fromkeys(stack for stack in stacks if stack)),
        tuple(dict.fromkeys(given.pre_grad_nodes)),
        tuple(map(tuple, shapes)) if shapes is not None and known else None,
    )  # fmt: skip


def _in_order(kernels: list[CompiledKernel | None]) -> tuple[CompiledKernel, ...]:
    return tuple(sorted((kernel for kernel in kernels if kernel is not None), key=lambda kernel: kernel.handle))
