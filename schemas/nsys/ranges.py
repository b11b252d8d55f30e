"""What the text of an NVTX range says: an operator of `torch.autograd.profiler.emit_nvtx`, a module or an annotation.

emit_nvtx writes `name[, seq = N][, op_id = N][, sizes = [[…], …]][, input_op_ids = [(op_id, output), …]]`
(`getNvtxStr` in torch/csrc/profiler/util.cpp). `op_id` is the handle of the RecordFunction, which an Execution Trace
has as `rf_id`; `sizes` is there with `record_shapes`, lists of tensors flattened, [] for what is not a tensor; the
producer of an input that is not known is (0, -1).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...trace.conventions import PYTHON_CATEGORY

__all__ = ["ANNOTATION", "OPERATOR", "Range", "read_range"]

OPERATOR, ANNOTATION = "cpu_op", "user_annotation"
_EMITTED = re.compile(
    r"(?=, (?:seq|op_id|sizes) = )(?:, seq = (-?\d{1,18}))?(?:, op_id = (\d{1,18}))?"
    r"(?:, sizes = (\[[\d\[\], -]*\]))?(?:, input_op_ids = (\[[\d(), -]*\]))?\Z"
)
_PRODUCER = re.compile(r"\((\d{1,18}), ?-?\d+\)")
_OPERATOR_NAME = re.compile(
    r"autograd::engine::evaluate_function: |(?:[a-z_][\w.]*(?:::\w+)+(?:\.\w+)?|record_param_comms|triton_\w+|detach_?|"
    r"\w+Backward\d*)$"
)
_MODULE = re.compile(r"nn\.Module: |\{'Module': '([^']+)'|layer:(.+)", re.DOTALL)
"""The profiler's own form; the layer-wise NVTX hooks of vLLM, SGLang and TensorRT-LLM; that of Apex's PyProf."""


class Range(NamedTuple):
    """A range by its text.

    Attributes:
        name: without the arguments.
        category: as in a Kineto trace: OPERATOR, ANNOTATION, or that of Python calls for a module.
        seq: sequence number of autograd, −1 for none. op_id: 0 for none.
        sizes: JSON text of the shapes, "" where none were recorded.
        producers: op ids of the producers of its inputs.
    """

    name: str
    category: str
    seq: int = -1
    op_id: int = 0
    sizes: str = ""
    producers: tuple[int, ...] = ()


def read_range(text: str) -> Range:
    """Parse the text of a range.

    Whether a range with an op_id is an operator or a `record_function` of the user is not written; it counts as an
    operator if it has a sequence number or the name of one, with a namespace in lower case.

    Example:
        >>> read_range("aten::mm, op_id = 7, sizes = [[2, 3], [3, 4]], input_op_ids = [(5, 0), (0, -1)]")
        Range(name='aten::mm', category='cpu_op', seq=-1, op_id=7, sizes='[[2, 3], [3, 4]]', producers=(5,))
        >>> read_range("forward").category, read_range("layer:conv1").name
        ('user_annotation', 'nn.Module: conv1')
    """
    found = _EMITTED.search(text)
    if found is None:
        module = _MODULE.match(text)
        if module is not None:
            own = module[1] or module[2]
            return Range(text if own is None else f"nn.Module: {own}", PYTHON_CATEGORY)
        return Range(text, OPERATOR if text.startswith("aten::") else ANNOTATION)
    name, (seq, op_id, sizes, inputs) = text[: found.start()], found.groups()
    is_operator = (seq is not None and seq[0] != "-") or _OPERATOR_NAME.match(name) is not None
    producers = [int(number) for number in _PRODUCER.findall(inputs or "")]
    return Range(
        name, OPERATOR if is_operator else ANNOTATION, -1 if seq is None else max(int(seq), -1), int(op_id or 0),
        sizes or "", tuple(number for number in dict.fromkeys(producers) if number),
    )  # fmt: skip
