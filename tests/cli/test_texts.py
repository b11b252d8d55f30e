"""Commands print these texts, word for word.

`ETPLUS_TEXTS=write pytest tests/cli` writes the texts again; look at what changes. They cover cli.analyze, cli.check,
cli.convert, cli.demo, cli.diff, cli.inputs, cli.link, cli.link_text, cli.main, cli.measure,
cli.options, cli.outputs, cli.parser, cli.predict_evaluate, cli.predict_fit, cli.predict_run, cli.replay, cli.report,
cli.reshard, cli.terminal, cli.top and cli.why.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from etplus import __version__
from support import call, fixture_pair, linked, plain, succeeds

TEXTS = Path(__file__).with_name("texts")
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
    succeeds("convert", "plus.json", "-o", "plus.0.et", cwd=folder)
    return folder


def printed(cases: Sequence[str], folder: Path, *, masked: bool) -> str:
    """Run command lines one after the other in a folder of inputs (see `_sources`); return what they print.

    Args:
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
        text = "\n".join([*texts, f"[{done.returncode}; new: {', '.join(new)}]"])
        if masked:
            text = re.sub(r"[ ]{2,}", "  ", re.sub(r"(?m)(?<!^\[)[+-]?\d[\d,.]*", "N", text))
        parts.append(f"$ {line}\n{text}\n")
    found = re.sub(r"[\d.]+ MB\)", "N MB)", "".join(parts))  # of compressed data
    return re.sub(r'(?<="elapsed_s": )[\d.]+', "N", found)


MASKED = ("predict-evaluate", "predict-fit", "predict-run", "reshard")
"""Commands with numbers that depend on numpy."""


@pytest.mark.parametrize(
    "name",
    [
        "analyze", "check", "convert", "convert-augment", "diff", "link", "link-folder", "predict-evaluate",
        "predict-fit", "predict-run", "replay", "report", "reshard", "demo", "measure", "usage", "top", "why",
    ],
)  # fmt: skip
def test_a_command_prints_its_stored_texts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    if name == "reshard":
        (tmp_path / "bad.json").write_text("{")
    for split in ("train", "valid", "test") if name == "predict-evaluate" else ():
        (tmp_path / "set" / split).mkdir(parents=True)
    file = TEXTS / f"{name.replace('-', '_')}.txt"
    expected = file.read_text("utf-8")
    cases = re.findall(r"^\$ (.*)$", expected, re.MULTILINE)
    found = printed(cases, tmp_path, masked=name in MASKED)
    if os.environ.get("ETPLUS_TEXTS") == "write":
        file.write_text(found, "utf-8")
    assert cases and found == expected
