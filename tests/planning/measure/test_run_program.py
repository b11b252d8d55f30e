"""Scripts that call one operator."""

from __future__ import annotations

import json
from typing import Any

from etplus.planning.measure.reader import recorded_calls
from etplus.planning.measure.recorded_calls import RecordedCall
from etplus.planning.measure.run_program import op_script
from recorded_ops import mm, trace_of


def calls_of(*documents: Any) -> list[RecordedCall]:
    return [one for _, one in recorded_calls(trace_of(*documents)) if isinstance(one, RecordedCall)]


def test_scripts() -> None:
    (call,) = calls_of(mm())
    text = op_script(call, 12.5, "a\n.json", "op.py", device="cuda:0", threads=3)
    assert (
        text.startswith('"""aten::mm\n\nWritten by `etplus measure --script` from a?.json.')
        and "torch.set_num_threads(3)" in text
    )
    assert "RECORDED_US = 12.5" in text and "else 'cuda:0'" in text and "from .standalone" not in text
    space: dict[str, Any] = {}
    lines = text[text.index("CALL = ") : text.index("RECORDED_US")]
    exec("import json\n" + lines, space)
    assert space["CALL"] == json.loads(json.dumps(call.call))
    heads = [line for line in text.splitlines() if line.startswith(("import ", "from "))]
    assert heads == sorted(heads, key=lambda line: ("torch" in line, line)) and len(set(heads)) == len(heads)
