"""Shapes that no usual trace has cost no more than their size: work is counted, at two sizes, not timed."""

from typing import Any

import orjson
from etplus.schemas.kineto.kineto_decode import decode_any, decode_plain
from etplus.schemas.kineto.kineto_events import EventColumns
from etplus.schemas.kineto.read_kineto import read_kineto
from etplus.trace.errors import UNREADABLE
from hypothesis import assume, given
from hypothesis import strategies as st
from made_traces import kineto_of, op
from support import Document, examples

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
    read = read_kineto(kineto_of([op("first", 0, 1), *events]), modules=modules)
    names = [read.events.names[code] for code in read.events.name.tolist()]
    assert names == ["first", *(name for name in good if name is not None)]
    assert sum(loss.count for loss in read.losses) == good.count(None)
