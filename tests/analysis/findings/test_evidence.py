"""Each number of each finding is printed by the command of its evidence, on real traces; seven at most come first."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support import call, shared_trace

TRACES = [
    "gpu-kineto/h100_bert.json.gz", "gpu-kineto/mi250_minitoy.json.gz", "gpu-kineto/mi210_gpu_only.json.gz",
    "cuspy/alexnet.json.gz", "cpu-pairs/ckpt_re.kineto.json.gz", "cpu-pairs/dlrm_same.kineto.json.gz",
    "cpu-pairs/infer_mlp.kineto.json.gz", "cpu-pairs/tf_adam_loop.kineto.json.gz",
    "cpu-pairs/ddp_one.rank1.kineto.json.gz",
    pytest.param("gpu-pairs/dlrm.rank0.kineto.json.gz", marks=pytest.mark.slow),
    pytest.param("parallel/block.fsdp-tp4/rank1.kineto.json.gz", marks=pytest.mark.slow),
    pytest.param("python-stacks/mi300_timesformer.json.gz", marks=pytest.mark.slow),
]  # fmt: skip


@cache
def printed(*words: str) -> str:
    """What a command prints but for findings, whose own numbers prove nothing; of `analyze` and `replay` also JSON."""
    more = ["--full"] if words[0] in ("analyze", "replay") else []
    done = call(*words, *more)
    assert done.returncode == 0, done.stderr
    text = re.split(r"\n\n\d+ problems? |\n\nno problems found", done.stdout.decode())[0]
    if words[0] in ("analyze", "replay"):
        numbers = json.loads(call(*words, "--json", "-").stdout)
        text += json.dumps(_without_findings(numbers))
    return re.sub(r"(?<=\d),(?=\d{3})", "", text)


def _without_findings(numbers: Any) -> Any:
    if isinstance(numbers, list):
        return [_without_findings(one) for one in numbers]
    if isinstance(numbers, dict):
        return {key: _without_findings(value) for key, value in numbers.items() if key != "findings"}
    return numbers


def shown(evidence: dict[str, Any]) -> bool:
    """Whether the evidence's command prints its number, in whichever unit; without a number, whether it runs."""
    command, *words = shlex.split(evidence["command"])
    assert command == "etplus"
    text = printed(*words)
    if evidence["value"] is None:
        return True
    value = float(evidence["value"])
    forms = [f"{value:.0f}", f"{value / 1e6:.3f}", f"{value / 1e3:.1f}", f"{100 * value:.1f}%"]
    return any(re.search(rf"(?<![\d.]){re.escape(form)}(?![\d.]*\d)", text) for form in forms)


def words_of(path: Path) -> list[str]:
    if ".kineto." not in path.name:
        return [str(path)]
    return ["--et-file", str(path).replace(".kineto.", ".et."), "--kineto-file", str(path)]


@pytest.mark.parametrize("name", TRACES)
def test_commands_print_the_numbers_of_their_evidence(name: str) -> None:
    done = call("why", *words_of(shared_trace(name)), "--json", "-")
    found = json.loads(done.stdout)["found"]
    assert found
    for finding in found:
        assert finding["evidence"], finding
        for evidence in finding["evidence"]:
            assert shown(evidence), (finding["id"], evidence)


@pytest.mark.parametrize(
    "part", [["--steps", "1"], ["--window", "0-20ms"], ["--between", "Optimizer", "1"]], ids=lambda part: part[0]
)
def test_commands_look_at_the_same_part(part: list[str]) -> None:
    path = shared_trace("cpu-pairs/tf_adam_loop.kineto.json.gz")
    found = json.loads(call("why", *part, *words_of(path), "--json", "-").stdout)
    assert found["found"]
    for finding in found["found"]:
        assert finding["gain"] is None or finding["gain"]["ns"] <= found["makespan_ns"]
        for evidence in finding["evidence"]:
            assert shown(evidence), (finding["id"], evidence)
