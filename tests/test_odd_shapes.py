"""Shapes that no usual trace has cost no more than their size: work is counted, at two sizes, not timed."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
from etplus.schemas.kineto.kineto_decode import decode_any, decode_plain
from etplus.schemas.kineto.kineto_events import EventColumns
from etplus.schemas.kineto.read_kineto import read_kineto
from etplus.trace.errors import UNREADABLE
from hypothesis import assume, given
from hypothesis import strategies as st
from support import Document, call, examples, kineto_document


def steps_of(work: Callable[[], object]) -> int:
    """How much Python does in a piece of work: calls, of C functions too, and lines of this package that run.

    Unlike seconds it is the same on any machine; what a C function does with a column counts once.
    """
    steps = 0

    def called(_frame: FrameType, event: str, _what: Any) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    def line(frame: FrameType, event: str, _what: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return line if "etplus" in frame.f_code.co_filename else None

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(line)
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before[1])
        sys.settrace(before[0])
    return steps


def event(name: str, ts: float, dur: float, **more: Any) -> Document:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur} | more


ODD: list[Any] = [0, 1, -1, 0.5, -0.0004, -0.0006, 1e12, 1e15, 9.1e12, 2**62, 5e15, None, "1 s", True, [], {}]


def plainly(events: list[Document], modules: bool) -> bool:
    """Whether the decoder of plain events, which looks at less, takes all; it may leave them to the other."""
    try:
        return decode_plain(orjson.dumps(events), EventColumns(), modules=modules)
    except UNREADABLE:
        return False


@examples(100)
@given(st.data())
def test_what_is_left_out_is_what_the_decoder_refuses(data: st.DataObject) -> None:
    """Of events of every kind with odd values, those are kept that can be read alone; others are counted."""
    events = []
    for k in range(data.draw(st.integers(1, 12))):
        ph = data.draw(st.sampled_from(["X", "X", "i", "s", "f", "M", "Q"]))
        names = ["a", "[memory]", "nn.Module: M"]
        one = {"ph": ph, "cat": data.draw(st.sampled_from(["cpu_op", "python_function", "ac2g"])), "pid": 1, "tid": k}
        one["name"] = data.draw(st.sampled_from(names))
        for key in data.draw(st.lists(st.sampled_from(["ts", "dur", "args", "id"]), unique=True)):
            one[key] = data.draw(st.sampled_from([*ODD, {"Bytes": 8}, {"Bytes": "8", "External id": 4}]))
        events.append(one)
    modules, good = data.draw(st.booleans()), list[str | None]()
    for one in events:
        try:
            columns = EventColumns()
            decode_any(orjson.dumps([one]), columns, modules=modules)
            good += [columns.values["name"][code] for code in columns.events()["name"].tolist()]
        except UNREADABLE:
            good.append(None)
    assume(None in good and not plainly(events, modules))
    read = read_kineto(orjson.dumps(kineto_document([event("first", 0, 1), *events])), modules=modules)
    names = [read.events.names[code] for code in read.events.name.tolist()]
    assert names == ["first", *(name for name in good if name is not None)]
    assert sum(loss.count for loss in read.losses) == good.count(None)


def test_a_page_of_twice_as_many_streams_is_at_most_about_twice_the_work(tmp_path: Path) -> None:
    def page(count: int) -> int:
        calls = [
            event("cudaLaunchKernel", k, 0.5, cat="cuda_runtime", args={"correlation": k + 1}) for k in range(count)
        ]
        kernels = [
            event(
                f"k{k % 9}", k + 1, 2.0 * count, cat="kernel", args={"correlation": k + 1, "device": 0, "stream": 7 + k}
            )
            for k in range(count)
        ]
        (tmp_path / "k.json").write_bytes(orjson.dumps(kineto_document([*calls, *kernels], baseTimeNanoseconds=5)))
        done: list[int] = []
        steps = steps_of(lambda: done.append(call("report", tmp_path / "k.json", "-o", tmp_path / "o.html").returncode))
        assert done == [0]
        return steps

    page(10)  # what is imported or compiled once
    base, once, twice = (page(count) for count in (10, 70, 140))
    assert twice - base < 2.3 * (once - base)
