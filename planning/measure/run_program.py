"""Write scripts that call an operator from a trace. The scripts need only torch; this module does not need torch."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from .recorded_calls import RecordedCall

_HEAD = '''"""{title}

Written by `etplus measure --script` from {source}. Run it with Python and PyTorch:

    python {name} [cpu | cuda:0]
"""

'''
_MAIN = """

CALL = json.loads({data})
RECORDED_US = {recorded}

if __name__ == "__main__":
    device = sys.argv[1] if len(sys.argv) > 1 else {device}
    torch.manual_seed(0){threads}
    found = measure(CALL, device, threads=torch.get_num_threads(), min_time=0.2)
    print(f"{{CALL['op']}} recorded {{RECORDED_US:.1f}} us, here {{found['ns'] / 1000:.1f}} us")
    print(f"median of {{found['runs']}} calls, interquartile range {{found['iqr_ns'] / 1000:.1f}} us")
"""


def op_script(call: RecordedCall, recorded_us: float, source: str, name: str, *, device: str, threads: int) -> str:
    limit = f"\n    torch.set_num_threads({threads:d})" if threads else ""  # PyTorch decides by default
    main = _MAIN.format(data=_data(call.call), recorded=repr(float(recorded_us)), device=repr(device), threads=limit)
    title, source, name = map(_one_line, (call.schema.op, source, name))
    return _HEAD.format(title=title, source=source, name=name) + _code() + main


def _one_line(text: str) -> str:
    """Replace all characters except letters, digits and some punctuation, because names in traces are untrusted."""
    kept = "".join(char if char.isascii() and (char.isalnum() or char in " _-.:/#[](),") else "?" for char in text)
    return kept[:200]


def _data(value: Any) -> str:
    text = json.dumps(value)
    pieces = [repr(text[at : at + 100]) for at in range(0, len(text), 100)]
    return "(\n    " + "\n    ".join(pieces) + "\n)" if len(pieces) > 1 else repr(text)


def _code() -> str:
    """Return the source code of `standalone`, without its docstring."""
    lines = files(__package__).joinpath("standalone.py").read_text(encoding="utf-8").split('"""', 2)[2].splitlines()
    imports = sorted({line for line in lines if line.startswith(("import ", "from ")) and "torch" not in line})
    torch = sorted({line for line in lines if line.startswith(("import ", "from ")) and "torch" in line})
    head = sorted({*imports, "import json", "import sys"})
    kept = "\n".join(line for line in lines if not line.startswith(("import ", "from ")))
    return "\n".join([*head, "", *torch, "", "# fmt: off", kept.strip("\n"), ""])
