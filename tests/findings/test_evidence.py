"""Each finding has a number that the command of its evidence prints, on real traces; seven at most are shown first."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from etplus import link, load
from etplus.findings import Case, Evidence, find_findings
from support import call, shared_trace

TRACES = [
    "gpu-kineto/h100_bert.json.gz", "gpu-kineto/mi250_minitoy.json.gz", "gpu-kineto/mi210_gpu_only.json.gz",
    pytest.param("gpu-pairs/dlrm.rank0.kineto.json.gz", marks=pytest.mark.slow), "cpu-pairs/ckpt_re.kineto.json.gz",
    "cpu-pairs/dlrm_same.kineto.json.gz", "cpu-pairs/infer_mlp.kineto.json.gz",
    "cpu-pairs/tf_adam_loop.kineto.json.gz",
]  # fmt: skip


@cache
def printed(*words: str) -> str:
    """What a command prints but for findings, whose own numbers prove nothing; of `analyze` also its JSON."""
    done = call(*words)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode().split("\n\nfindings: ")[0]
    if words[0] == "analyze":
        numbers = json.loads(call(*words, "--json", "-").stdout)
        for trace in numbers["traces"]:
            del trace["findings"]
        text += json.dumps(numbers)
    return text.replace(",", "")


def shown(evidence: Evidence, path: Path, file: str) -> bool:
    """Whether the evidence's command prints its number, in whichever unit."""
    command, *words = shlex.split(re.sub(r"(analyze \S+): .*", r"\1", evidence.command))
    assert command == "etplus"
    if evidence.value is None or words[0] == "replay":  # a replay takes long; its numbers are in other tests
        return False
    text = printed(*(str(path) if word == file else word for word in words))
    value = float(evidence.value)
    forms = [f"{value:.0f}", f"{value / 1e6:.3f}", f"{value / 1e3:.1f}", f"{100 * value:.1f}%"]
    return any(re.search(rf"(?<![\d.]){re.escape(form)}(?![\d.]*\d)", text) for form in forms)


@pytest.mark.parametrize("name", TRACES)
def test_each_finding_has_a_number_that_a_command_prints(name: str, tmp_path: Path) -> None:
    path = shared_trace(name)
    if ".kineto." in name:
        linked = link(Path(str(path).replace(".kineto.", ".et.")), path)
        path = tmp_path / "linked.json"
        linked.save(path)
    trace = load(path)
    found = find_findings(Case([trace]))
    assert found.all and len(found.first) <= 7
    for finding in found:
        assert any(shown(one, path, trace.file) for one in finding.evidence), finding.to_dict()
