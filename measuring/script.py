"""Scripts that call operators of a trace as recorded and need torch only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from .recorded_calls import RecordedCall
from .run_program import ProgramPlan

_HEAD = '''"""{title}

Written by `etplus repro` from {source}. Run it with Python and PyTorch:

    python {name} [cpu | cuda:0]
"""

'''
_MAIN_OF_ONE = """

CALL = json.loads({data})
RECORDED_US = {recorded}

if __name__ == "__main__":
    device = sys.argv[1] if len(sys.argv) > 1 else {device}
    torch.manual_seed(0)
    torch.set_num_threads({threads})
    found = measure(CALL, device, threads=torch.get_num_threads(), min_time=0.2)
    print(f"{{CALL['op']}} recorded {{RECORDED_US:.1f}} us, here {{found['ns'] / 1000:.1f}} us")
    print(f"median of {{found['runs']}} calls, interquartile range {{found['iqr_ns'] / 1000:.1f}} us")
"""
_MAIN_OF_SEVERAL = """

PROGRAM = json.loads({data})
RECORDED_US = json.loads({recorded})

if __name__ == "__main__":
    device = sys.argv[1] if len(sys.argv) > 1 else {device}
    torch.manual_seed(0)
    torch.set_num_threads({threads})
    found = run(PROGRAM, device, repeat=10)
    for at, (call, recorded, ns) in enumerate(zip(PROGRAM["calls"], RECORDED_US, found["ns"])):
        here = "failed: " + found["failed"].get(str(at), "") if ns < 0 else f"{{ns / 1000:.1f}} us"
        print(f"{{call['op']:40}} recorded {{recorded:.1f}} us, here {{here}}")
    done = [(recorded, ns / 1000) for recorded, ns in zip(RECORDED_US, found["ns"]) if ns >= 0]
    total, here = sum(recorded for recorded, _ in done), sum(us for _, us in done)
    print(f"{{len(done)}} of {{len(RECORDED_US)}} operators: recorded {{total:.1f}} us, here {{here:.1f}} us")
    sys.exit(len(done) < len(RECORDED_US))
"""


def op_script(one: RecordedCall, recorded_us: float, source: str, name: str, *, device: str, threads: int) -> str:
    """The text of a script that calls one operator repeatedly.

    Args:
        source: file that it was recorded in. name: of the script. threads: of torch.
    """
    main = _MAIN_OF_ONE.format(
        data=_data(one.call), recorded=repr(float(recorded_us)), device=repr(device), threads=int(threads)
    )
    return _head(one.schema.op, source, name) + _code("standalone") + main


def sequence_script(
    plan: ProgramPlan, recorded_us: Sequence[float], title: str, source: str, name: str, *, device: str, threads: int
) -> str:
    """The text of a script that calls operators in their order."""
    main = _MAIN_OF_SEVERAL.format(
        data=_data(plan.program), recorded=_data([float(one) for one in recorded_us]), device=repr(device),
        threads=int(threads),
    )  # fmt: skip
    return _head(title, source, name) + _code("standalone", "sequence") + main


def _head(title: str, source: str, name: str) -> str:
    """The docstring. What traces and users name is data: only letters, digits and a few signs of it are kept."""
    return _HEAD.format(title=_plain(title), source=_plain(source), name=_plain(name))


def _plain(text: str) -> str:
    kept = "".join(one if one.isascii() and (one.isalnum() or one in " _-.:/#[](),") else "?" for one in text)
    return kept[:200]


def _data(value: Any) -> str:
    """JSON as a Python literal, which can hold nothing but text."""
    text = json.dumps(value)
    pieces = [repr(text[at : at + 100]) for at in range(0, len(text), 100)]
    return "(\n    " + "\n    ".join(pieces) + "\n)" if len(pieces) > 1 else repr(text)


def _code(*modules: str) -> str:
    """The text of modules that need torch only, without what they import of each other."""
    texts = [files(__package__).joinpath(f"{module}.py").read_text(encoding="utf-8") for module in modules]
    lines = [line for text in texts for line in _body(text).splitlines()]
    imports = sorted({line for line in lines if line.startswith(("import ", "from ")) and "torch" not in line})
    torch = sorted({line for line in lines if line.startswith(("import ", "from ")) and "torch" in line})
    head = sorted({*imports, "import json", "import sys"})
    kept = "\n".join(line for line in lines if not line.startswith(("import ", "from ")))
    return "\n".join([*head, "", *torch, "", "# fmt: off", kept.strip("\n"), ""])


def _body(text: str) -> str:
    """A module without its docstring and without imports of this package."""
    body = text.split('"""', 2)[2]
    return "\n".join(line for line in body.splitlines() if not line.startswith("from ."))
