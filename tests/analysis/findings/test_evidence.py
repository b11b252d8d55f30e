"""Each number of each finding is printed by the command of its evidence, on real traces.

Modules: analysis.findings.proofs, analysis.findings.case, analysis.findings.finding, analysis.findings.precision.
"""

import json
import re
import shlex
from functools import cache
from typing import Any

import pytest
from support import FIXTURES, call, shared_trace, succeeds

OPTIMIZER = str(FIXTURES / "findings" / "optimizer" / "before")
PAIR = ["--et-file", f"{OPTIMIZER}.et.json.gz", "--kineto-file", f"{OPTIMIZER}.kineto.json.gz"]


@cache
def printed(*words: str) -> str:
    """What a command prints but for findings, whose own numbers prove nothing; of `analyze` and `replay` also JSON."""
    more = ["--full"] if words[0] in ("analyze", "replay") else []
    text = re.split(r"\n\n\d+ problems? |\n\nno problems found", succeeds(*words, *more).stdout.decode())[0]
    if more:
        text += json.dumps(_without_findings(json.loads(call(*words, "--json", "-").stdout)))
    return re.sub(r"(?<=\d),(?=\d{3})", "", text)


def _without_findings(numbers: Any) -> Any:
    if isinstance(numbers, list):
        return [_without_findings(one) for one in numbers]
    if isinstance(numbers, dict):
        return {key: _without_findings(value) for key, value in numbers.items() if key != "findings"}
    return numbers


def is_shown(evidence: dict[str, Any]) -> bool:
    """Whether the evidence's command prints its number, in whichever unit; without a number, whether it runs."""
    command, *words = shlex.split(evidence["command"])
    assert command == "etplus"
    text = printed(*words)
    if evidence["value"] is None:
        return True
    value = float(evidence["value"])
    forms = [f"{value:.0f}", f"{value / 1e6:.3f}", f"{value / 1e3:.1f}", f"{100 * value:.1f}%"]
    return any(re.search(rf"(?<![\d.]){re.escape(form)}(?![\d.]*\d)", text) for form in forms)


def check(*words: str) -> None:
    found = json.loads(call("why", *words, "--json", "-").stdout)
    assert found["found"]
    for finding in found["found"]:
        assert finding["evidence"] and (finding["gain"] is None or finding["gain"]["ns"] <= found["makespan_ns"])
        for evidence in finding["evidence"]:
            assert is_shown(evidence), (finding["id"], evidence)


@pytest.mark.parametrize("name", ["gpu-kineto/mi250_minitoy", "cuspy/alexnet"])
def test_commands_print_the_numbers_of_their_evidence(name: str) -> None:
    check(str(shared_trace(f"{name}.json.gz")))


@pytest.mark.parametrize("part", [["--steps", "1"], ["--between", "Optimizer", "1"]], ids=lambda part: part[0])
def test_commands_of_evidence_keep_the_chosen_part(part: list[str]) -> None:
    check(*part, *PAIR)
