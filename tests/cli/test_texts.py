"""Commands print these texts, word for word.

`ETPLUS_TEXTS=write pytest tests/cli` writes the texts again; look at what changes. They cover cli.analyze, cli.check,
cli.convert, cli.demo, cli.diff, cli.inputs, cli.link, cli.link_folder, cli.link_text, cli.main, cli.measure,
cli.options, cli.outputs, cli.parser, cli.predict_evaluate, cli.predict_fit, cli.predict_run, cli.replay, cli.report,
cli.reshard, cli.terminal, cli.top and cli.why.
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

import pytest
from etplus import __version__
from support import call, fixture_pair, linked, plain

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


CASES = {
    "analyze": [
        "analyze plus.json", "analyze kineto.json --full --steps 0", "analyze plus.json --window 1-2.5ms",
        "analyze kineto.json plus.json", "analyze plus.json --csv tables -o text.txt",
    ],
    "check": [
        "check plus", "check plus.0.et --profile astra-sim", "check plus.0.et --profile astra-sim --limit 1",
        "check plus.0.et --json -", "check --json plus", "check plus --json report.json -o text.txt", "check",
        "check nothing",
    ],
    "convert": [
        "convert plus.json -o job.0.et", "convert plus.json -o job.0.et --json -", "convert plus.json -o step.dot",
        "convert plus.json", "convert --et-file et.json --kineto-file kineto.json -o of_pair.json --json out.json",
        "convert plus.json -o three.dot --option max-nodes=3", "convert plus.json -o few.dot --option max_nodes",
        "convert plus.json -o few.dot --max-nodes 3", "convert plus.json -o few.npz --config threads",
        "convert plus.json -o few.npz --config threads=2.5", "convert plus.json -o job --to astra-sim",
        "convert plus.json -o job --to astra-sim --no-skew --roofline 100 --json -",
        "convert plus.json -o job --to chakra --memory-nodes --degrade",
    ],
    "convert-augment": [
        "convert --augment kineto.json -o more.json --json -",
        "convert --augment plus.json -o more_plus.json --json counts.json",
        "convert --augment --et-file et.json --kineto-file kineto.json -o of_pair.json",
        "convert --augment plus.0.et -o of_chakra.json", "convert --augment plus.json",
        "convert --augment kineto.json plus.json -o both.json",
    ],
    "demo": ["demo", "demo -o other -q"],
    "diff": [
        "diff kineto.json slow.json", "diff kineto.json slow.json --by-shape --total",
        "diff kineto.json slow.json --total -o tables.txt --json numbers.json",
        "diff kineto.json slow.json -o page.html", "diff kineto.json slow.json --steps 0 --max-regression 5",
        "diff kineto.json", "diff kineto.json slow.json --max-regression never",
        "diff slow.json kineto.json --max-regression 5%",
    ],
    "link": [
        "link et.json kineto.json --jobs 1", "link kineto.json et.json -o plus2.json --jobs 1 --json -",
        "link --et-file et.json --kineto-file kineto.json --rank 3 --jobs 1",
        "link kineto.json -o alone.json --jobs 1 --json report.json", "link kineto.json -o alone.et",
        "link et.json kineto.json -o less.json --min-match 1 --jobs 1 --match ids", "link et.json",
        "link et.json et.json", "link kineto.json kineto.json", "link et.json kineto.json plus.json", "link",
        "link et.json --kineto-file kineto.json", "link --et-file -  --kineto-file -",
        "link - -o x.json --min-match 1.5", "link et.json kineto.json --pid 3",
    ],
    "link-folder": [
        "link . --dry-run", "link . --dry-run --ranks 0-1,4", "link . --dry-run --ranks 3-1",
        "link . --dry-run --ranks a",
        "link . --ranks 0 --et et.json --kineto kineto.json --jobs 1 --no-progress -o out --json -",
    ],
    "measure": [
        "measure plus.json --script aten::addmm -o call.py", "measure plus.json --script nothing -o none.py",
        "measure plus.json", "measure plus.json -o m.json --budget never", "measure kineto.json -o m.json --set batch",
    ],
    "predict-evaluate": [
        "convert plus.json -o set/train/a.npz", "convert kineto.json -o set/train/b.npz",
        "convert slow.json -o set/test/c.npz", "predict evaluate set", "predict evaluate set --json -",
        "predict evaluate set --split valid", "predict evaluate set --split train -o out.txt", "predict evaluate none",
    ],
    "predict-fit": [
        "predict fit plus.json -o model.json", "predict fit plus.json -o model2.json --explain gemm --json -",
        "predict fit plus.json -o model3.json --explain gemm",
        "predict fit plus.json -o model4.json --explain nothing --keep-outliers",
        "predict fit plus.json -o model5.json --json numbers.json",
    ],
    "predict-run": [
        "predict fit plus.json -o model.json", "predict run plus.json --model model.json --force",
        "predict run plus.json --model model.json --force --json -",
        "predict run plus.json --model model.json --force -o text.txt",
        "predict run plus.json --model model.json --force --gpu 3",
        "predict run plus.json --model model.json --force --set batch=8",
        "predict run plus.json --model model.json --rank-couple --steps 0",
        "predict run plus.json --model model.json --steps 0 --keep-outliers --host model",
        "predict run plus.json kineto.json --model model.json --force --rank-couple",
        "predict run plus.json --gpu H100 --model model.json --force -o other.txt",
        "predict run plus.json --model model.json --set batch=x", "predict run plus.json --model plus.json",
    ],
    "replay": [
        "replay plus.json", "replay plus.json --force --what-if kernel*0.5 --json - --chrome both.json",
        "replay plus.json --force --network bandwidth=25,latency=5us -o text.txt",
        "replay plus.json --cross-validate", "replay plus.json --cross-validate 0 --json -",
        "replay plus.json --cross-validate 0 --force --what-if kernel*0.5", "replay plus.json --cross-validate 7",
        "replay plus.json kineto.json --rank-couple", "replay plus.json --what-if nonsense",
    ],
    "report": [
        "report plus.json -o page.html", "report plus.json -o page.txt",
        "report plus.json -o small.html --window 0-1ms --title small",
        "report plus.json -o small.html --window 5",
    ],
    "reshard": [
        "reshard plus.json --to chakra", "reshard plus.json --ranks 3", "reshard plus.json --use kineto.json --tp 2",
        "reshard plus.json --dp 2 --batch 3", "reshard plus.json --dp 4 --json -",
        "reshard plus.json --dp 4 -o out --representative",
        "reshard plus.json --dp 4 --to astra-sim -o chakra/job --ranks 1-2", "reshard plus.json --dp 4 --plan -",
        "reshard plus.json --tp 2 --plan plan.json", "reshard plus.json --use bad.json",
    ],
    "usage": [
        "", "--version", "nothing", "top --nothing", "why none.json",
        "analyze plus.json -o plus.json", "-q top plus.json", "analyze plus.json --json - --steps 9", "predict",
    ],
    "top": [
        "top plus.json", "top kineto.json slow.json --by line --top 3", "top plus.json --by phase --full",
        "top plus.json --by rank", "top plus.0.et --by step --steps 1",
    ],
    "why": [
        "why plus.json", "why plus.json kineto.json", "why plus.json --show 1", "why plus.json --show 99",
        "why plus.json --full -o text.txt", "why plus.json --fail-on launch-bound", "why plus.json --fail-on nothing",
    ],
}  # fmt: skip
MASKED = ("predict-evaluate", "predict-fit", "predict-run", "reshard")
"""Commands with numbers that depend on numpy."""


@pytest.mark.parametrize("name", CASES)
def test_a_command_prints_these_texts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    if name == "reshard":
        (tmp_path / "bad.json").write_text("{")
    for split in ("train", "valid", "test") if name == "predict-evaluate" else ():
        (tmp_path / "set" / split).mkdir(parents=True)
    check_texts(name.replace("-", "_"), CASES[name], tmp_path, masked=name in MASKED)
