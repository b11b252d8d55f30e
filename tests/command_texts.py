"""What commands print and write, word for word: each case of a command beside the text that was looked at once.

`ETPLUS_TEXTS=write pytest tests/cli` writes the texts anew; look at what changes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from etplus import __version__
from support import call, fixture_pair, linked, plain

TEXTS = Path(__file__).with_name("cli") / "texts"
PAIR = "pairs/gpu_shaped_from_cpu"


@cache
def _sources() -> Path:
    """et.json and kineto.json, a pair; plus.json, what it links to; plus.0.et, the same as a Chakra trace; slow.json,
    the Kineto trace with matrix products of twice the time."""
    folder = Path(tempfile.mkdtemp())
    et, kineto = fixture_pair(PAIR)
    (folder / "et.json").write_bytes(plain(et))
    (folder / "kineto.json").write_bytes(plain(kineto))
    slow = json.loads(plain(kineto))
    for event in slow["traceEvents"]:
        event["dur"] = event.get("dur", 0) * (1 + ("gemm" in str(event.get("name"))))
    (folder / "slow.json").write_text(json.dumps(slow))
    linked(PAIR).write(folder / "plus.json")
    assert call("convert", "plus.json", "-o", "plus.0.et", cwd=folder).returncode == 0
    return folder


def check_texts(name: str, cases: Sequence[str], folder: Path, *, masked: bool = False) -> None:
    """Run command lines one after the other in a folder of inputs (see `_sources`) and compare what they print.

    Args:
        name: of the file with the texts.
        masked: numbers are left out, as for those that depend on the versions of libraries.
    """
    shutil.copytree(_sources(), folder, dirs_exist_ok=True)
    parts = []
    for line in cases:
        before = set(folder.rglob("*"))
        done = call(*line.split(), cwd=folder)
        new = sorted(str(path.relative_to(folder)) for path in {*folder.rglob("*")} - before)
        texts = [
            text.decode().replace(str(folder), "DIR").replace(__version__, "VERSION")
            for text in (done.stdout, done.stderr)
        ]
        texts += [(folder / file).read_text("utf-8") for file in new if file.endswith(".txt")]
        parts.append("\n".join([f"$ {line}", *texts, f"[{done.returncode}; new: {', '.join(new)}]"]))
    found = re.sub(r"[\d.]+ MB\)", "N MB)", "\n".join(parts) + "\n")  # of compressed data
    found = re.sub(r'(?<="elapsed_s": )[\d.]+', "N", found)
    if masked:
        found = re.sub(r"[ ]{2,}", "  ", re.sub(r"(?m)(?<!^\[)[+-]?\d[\d,.]*", "N", found))
    file = TEXTS / f"{name}.txt"
    if os.environ.get("ETPLUS_TEXTS") == "write":
        TEXTS.mkdir(exist_ok=True)
        file.write_text(found, "utf-8")
    assert found == file.read_text("utf-8")
