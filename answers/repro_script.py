"""The question `repro`: a script that calls an operator as recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..measuring.reader import recorded_calls
from ..measuring.recorded_calls import RecordedCall
from ..measuring.run_program import op_script
from ..trace.index import CallIndex
from .answer import RECORDED, AnswerColumn, AnswerContent, AskError, Fact, Values
from .asked_traces import AskedTraces, meant, parse_id
from .recorded_text import quoted, recorded_path, recorded_text

_LINE = 400
"""Characters of a line of the script at most; the whole script is what `etplus repro` writes."""


def repro(asked: AskedTraces, *, id: str, trace: int | None = None) -> AnswerContent:
    """The lines of the script; of a name the longest call."""
    found = parse_id(id)
    number = asked.chosen(found.trace if found is not None and found.trace is not None else trace)[0]
    of, calls = asked.traces[number], asked.traces[number].calls
    recorded = dict(recorded_calls(of))
    able = {call: made for call, made in recorded.items() if isinstance(made, RecordedCall)}
    dur = calls.end - calls.ts
    if found is not None and found.kind == "event":
        at = np.flatnonzero(of.id[calls.source] == found.number).tolist()
    else:
        known = list(dict.fromkeys(of.names[calls.name[call]] for call in able))
        if not known:
            why = next((text for text in recorded.values() if isinstance(text, str)), "no operator has a schema")
            raise AskError(f"no operator of trace {number} can be called: {recorded_text(why, 120)}")
        name = asked.name_of(id, "operator", known)
        at = [int(call) for call in able if of.names[calls.name[call]] == name]
    if not at:
        raise AskError(f"no call {quoted(id, 40)}", works=["id=aten::mm", "hot by=operator", "hot by=event"])
    call = CallIndex(max(at, key=lambda one: int(dur[one])))
    made = recorded.get(call)
    if not isinstance(made, RecordedCall):
        problem = recorded_text(made or "it is not an operator with a schema", 200)
        near = [of.names[calls.name[one]] for one in of.call_tree.below(call).tolist() if CallIndex(one) in able]
        raise AskError(f"{quoted(id, 40)} cannot be called: {problem}", meant("aten", near))
    row = int(calls.source[call])
    here = asked.event_id(number, row)
    script = op_script(made, float(dur[call]) / 1000, Path(of.file).name, "repro.py", device="cpu", threads=1)
    command = f"etplus repro {recorded_path(of.file)} --op {int(of.id[row])} -o repro.py"
    rows: list[Values] = [
        {"id": asked.at("script", at, None), "text": text[:_LINE], "search": text}
        for at, text in enumerate(script.splitlines(), 1)
    ]  # fmt: skip
    facts = [
        Fact("operator", recorded_text(of.names[calls.name[call]]), "name", RECORDED, here),
        Fact("duration_ns", int(dur[call]), "ns", RECORDED, here),
        Fact("storage_bytes", made.storage_bytes, "bytes", RECORDED, here),
        Fact("command", command, "text", "", here),
    ]
    cut = any(len(text) > _LINE for text in script.splitlines())
    notes = ["the script; longer lines are cut, the command writes them whole"] if cut else ["the lines of the script"]
    columns = (AnswerColumn("id", "id"), AnswerColumn("text", "name"))
    return AnswerContent(facts, columns, rows, notes, about=(number,))
