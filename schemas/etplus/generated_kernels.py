"""Generated kernels in ET+ files: the root's `generated_kernels`."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from ...trace.columns import IntColumn, positions
from ...trace.errors import UNREADABLE, TraceFormatError
from ...trace.generated import GeneratedKernel, GeneratedKernels
from ...trace.index import as_positions

_REMEDY = "make the file again with trace-link"
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _GeneratedSection(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    kernels: tuple[GeneratedKernel, ...]
    id: list[_Number]
    kernel: list[_Number]


_decode = msgspec.json.Decoder(_GeneratedSection | None).decode


def generated_section(generated: GeneratedKernels, ids: IntColumn) -> bytes:
    """The value of `generated_kernels`; `ids` are those of `generated.row`."""
    return msgspec.json.encode(_GeneratedSection(generated.kernels, ids.tolist(), generated.kernel.tolist()))


def read_generated(file: str, text: bytes, ids: IntColumn) -> GeneratedKernels:
    """The kernels in the JSON text of the root's `generated_kernels`; `ids` are those of all rows.

    Raises:
        TraceFormatError: another form, or an id or a kernel that is not there.

    Example:
        >>> text = b'{"kernels": [{"name": "triton_poi_0", "kernel_hash": "cab"}], "id": [7], "kernel": [0]}'
        >>> read_generated("x.json", text, np.array([5, 7])).row.tolist()
        [1]
    """
    try:
        section = _decode(text)
    except UNREADABLE as error:
        raise TraceFormatError(file, '"generated_kernels"', f"cannot be read ({error})", _REMEDY) from None
    if section is None:
        return GeneratedKernels.none()
    row, kernel = positions(ids, np.array(section.id, np.int64)), np.array(section.kernel, np.int64)
    if len(row) != len(kernel) or row.min(initial=0) < 0 or kernel.max(initial=-1) >= len(section.kernels):
        raise TraceFormatError(file, '"generated_kernels"', "an id or a kernel that is not there", _REMEDY)
    order = np.argsort(row, kind="stable")
    return GeneratedKernels(section.kernels, as_positions(row[order]), kernel[order])
