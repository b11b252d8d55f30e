"""The suite for linkers: its index is true, etplus passes it in every form, and known defects of others fail it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from etplus.converters.conversion import convert
from etplus.linker import link
from etplus.schemas.chakra.et_def_pb2 import Node
from etplus.schemas.chakra.stream import read_chakra, write_chakra
from etplus.trace.errors import UsageError
from support import FIXTURES, ROOT, Document, read_json

sys.path.insert(0, str(ROOT / "benchmarks"))

from linker_suite import case_of, cases, counts_of, main, read_output, run_case


def files(name: str) -> tuple[Path, Path]:
    case = case_of(name)
    return FIXTURES / case.et, FIXTURES / case.kineto


def test_the_index_is_what_is_known() -> None:
    for case in cases():
        for key, count in counts_of(case).items():
            assert getattr(case, key) == count, (case.name, key)


@pytest.mark.parametrize(("name", "form"), [("gpu_shaped_from_cpu", "etplus.json"), ("gpu_shaped_from_cpu", "0.et.gz"),
                                            ("train_cpu", "0.et")])  # fmt: skip
def test_etplus_passes_in_every_form(name: str, form: str, tmp_path: Path) -> None:
    trace, path = link(*files(name)), tmp_path / f"{name}.{form}"
    if form.endswith("json"):
        trace.write(path)
    else:
        convert(trace, path)
    verdicts = run_case(case_of(path.name), read_output(path))
    assert [verdict.ok for verdict in verdicts] == [True] * len(verdicts), verdicts


def no_successors(node: Node, device: set[int]) -> None:
    kept = [need for need in node.data_deps if need not in device]
    del node.data_deps[:]
    node.data_deps.extend(kept)


def test_a_defect_of_a_linker_fails(tmp_path: Path) -> None:
    name = "gpu_shaped_from_cpu"
    convert(link(*files(name)), tmp_path / "good.et")
    metadata, nodes = read_chakra(tmp_path / "good.et")
    kept = list(nodes)
    device = {node.id for node in kept if any(a.name == "is_cpu_op" and not a.bool_val for a in node.attr)}
    for node in kept:
        no_successors(node, device)
    write_chakra(tmp_path / f"{name}.0.et", metadata, kept)
    verdicts = {verdict.test: verdict for verdict in run_case(case_of(name), read_output(tmp_path / f"{name}.0.et"))}
    assert verdicts["successors"].ok is False


def test_wrong_times_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another iteration's times: the whole trace later is none, one operator later is."""
    link(*files("train_cpu")).write(tmp_path / "train_cpu.json")
    document: Document = read_json(tmp_path / "train_cpu.json")
    timed = [node for node in document["nodes"] if "ts" in node]
    for node in timed:
        node["ts"] = round(node["ts"] + 1000, 3)
    (tmp_path / "train_cpu.json").write_text(json.dumps(document))
    assert main([str(tmp_path / "train_cpu.json")]) == 0
    timed[5]["ts"] = round(timed[5]["ts"] + 5, 3)
    (tmp_path / "train_cpu.json").write_text(json.dumps(document))
    assert main([str(tmp_path / "train_cpu.json")]) == 1
    assert f"first failure: node {timed[5]['id']}" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize("words", [[], ["other.json"], ["x.json", "--case", "train"], ["train_cpu.json"]])
def test_wrong_usage(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(words)
    with pytest.raises(UsageError):
        case_of("gpu_shaped")
