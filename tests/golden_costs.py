"""Lines that say what cost models fit and predict, for the golden files (see goldens.py)."""

from collections.abc import Iterator, Sequence
from typing import Any

import golden_timeline
import msgspec
from etplus.planning.costs.end_to_end import calibrated, predict, predict_ranks
from etplus.planning.costs.fitting import FittedModel, fit
from etplus.planning.costs.task import gpu_tasks
from etplus.planning.reshape.shape_change import batch_change
from etplus.trace.errors import EtplusError
from etplus.trace.trace import Trace
from golden_analysis import flat
from made_traces import Timeline
from support import linked

CASES = ("one rank", "steps", "jobs")
_TOLD = ("notes", "weakest_link", "file", "files", "version")


def cost_lines(case: str) -> list[str]:
    """The model that is fitted to the first traces, and what it predicts of each trace, with five digits."""
    traces = list(_traces(case))
    model = calibrated(fit(traces[:1]), traces[:1])
    lines = _lines("model", msgspec.to_builtins(model))
    for at, trace in enumerate(traces):
        for options in _OPTIONS[: 5 if case == CASES[0] else 7]:
            lines += _predicted(f"{at} {options}", trace, model, options)
        costs = model.costs(beyond=True)
        for task in gpu_tasks(trace)[:40]:
            lines += _lines(f"{at} {task.op} {task.kernel}", [costs.predict(task), task.group, task.kind, task.shapes])
    if case == "jobs":
        lines += _lines("joint", _plain(predict_ranks(traces, fit(traces), force=True).to_dict()))
    return lines


_OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"host": "model"}, {"device": "NVIDIA H100 80GB HBM3"}, {"changed": True}, {"shape": batch_change(16)},
    {"keep_outliers": True}, {"iterations": "1-2"},
)  # fmt: skip


def _traces(case: str) -> Sequence[Trace]:
    if case == "one rank":
        return linked("pairs/gpu_shaped_from_cpu"), golden_timeline.traces_of("item")[0]
    if case == "jobs":
        return *golden_timeline.traces_of("slow_rank")[:2], golden_timeline.traces_of("host ddp")[0]
    return _steps([96, 98, 100, 102, 104, 300]), _steps([90] * 4), _steps([9000, 9100, 20_000])


def _steps(lengths: list[int]) -> Trace:
    """Steps in which an operator launches two kernels and a copy, longer in longer steps."""
    made, now = Timeline(), 0
    for k, length in enumerate(lengths):
        made.op(f"ProfilerStep#{k}", now, length, category="user_annotation")
        made.op("aten::mm", now + 1, 30)
        made.launch("gemm", now + 2, 2, now + 10, length / 3)
        made.launch("reduce", now + 8, 2, now + 11 + length / 3, 5 + k % 2)
        copy = made.call("cudaMemcpyAsync", now + 14, 2)
        made.gpu("Memcpy DtoD (Device -> Device)", now + length / 2, 5, copy, category="gpu_memcpy", bytes=4096 * k)
        made.op("aten::add", now + 40, length / 4)
        now += length
    return made.document()


def _predicted(label: str, trace: Trace, model: FittedModel, options: dict[str, Any]) -> Iterator[str]:
    try:
        yield from _lines(label, _plain(predict(trace, model, force=True, **options).to_dict()))
    except EtplusError as error:
        yield f"{label}: {type(error).__name__}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if key not in _TOLD}
    return [*map(_plain, value)] if isinstance(value, (list, tuple)) else value


def _lines(label: str, value: Any) -> list[str]:
    return [*flat(label, _rounded(_plain(value)))]


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [*map(_rounded, value)]
    return float(f"{value:.5g}") if isinstance(value, (int, float)) and not isinstance(value, bool) else value
