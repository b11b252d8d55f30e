"""The suite for linkers: its index is true, etplus passes it in every form, and known defects of others fail it."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from etplus.converters.conversion import convert
from etplus.linker import link
from etplus.schemas.chakra.et_def_pb2 import Node
from etplus.schemas.chakra.stream import read_chakra, write_chakra
from etplus.trace.errors import UsageError
from hypothesis import given
from hypothesis import strategies as st
from support import FIXTURES, ROOT, Document, examples, read_json

sys.path.insert(0, str(ROOT / "benchmarks"))

from linker_suite import case_of, cases, counts_of, gaps_ns, main, read_output, run_case, truth

NAMES = [case.name for case in cases()]


def files(name: str) -> tuple[Path, Path]:
    case = case_of(name)
    return FIXTURES / case.et, FIXTURES / case.kineto


@pytest.mark.parametrize("name", NAMES)
def test_the_index_is_what_is_known(name: str) -> None:
    case = case_of(name)
    for key, count in counts_of(case).items():
        assert getattr(case, key) == count, key


@pytest.mark.parametrize("name", NAMES)
def test_what_is_known_agrees_with_the_files(name: str) -> None:
    """Of each operator the call with its name; of each device event an operator that is open when it is launched."""
    et, kineto = files(name)
    nodes = {node["id"]: node["name"] for node in read_json(et)["nodes"]}
    events = read_json(kineto)["traceEvents"]
    known = truth(case_of(name))
    by_time = {(round(e["ts"] * 1000), round(e["dur"] * 1000)): e["name"] for e in events if "dur" in e}
    assert all(by_time[ts, dur] == nodes[node] for node, (ts, dur, _) in known.calls.items())
    calls = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    work = {
        (round(e["ts"] * 1000), e["name"]): e
        for e in events
        if e.get("cat", "") in ("kernel", "gpu_memcpy", "gpu_memset")
    }
    for event in known.device:
        launch = round(calls[work[event.ts, event.name]["args"]["correlation"]]["ts"] * 1000)
        ts, dur, _ = known.calls[event.parent]
        assert ts <= launch <= ts + dur


@pytest.mark.parametrize("form", ["etplus.json", "0.et", "0.et.gz"])
@pytest.mark.parametrize("name", NAMES)
def test_etplus_passes_in_every_form(name: str, form: str, tmp_path: Path) -> None:
    trace, path = link(*files(name)), tmp_path / f"{name}.{form}"
    if form.endswith("json"):
        trace.write(path)
    else:
        convert(trace, path)
    verdicts = run_case(case_of(path.name), read_output(path))
    assert [verdict.ok for verdict in verdicts] == [True] * len(verdicts), verdicts


def no_successors(node: Node, device: set[int]) -> None:
    """What Chakra's issue 215 describes."""
    kept = [need for need in node.data_deps if need not in device]
    del node.data_deps[:]
    node.data_deps.extend(kept)


def no_times(node: Node, device: set[int]) -> None:
    """Chakra's issue 220: durations of operators alone, and nothing of the time between them."""
    node.start_time_micros = 0
    kept = [one for one in node.attr if one.name not in ("start_ns", "inclusive_ns", "exclusive_ns")]
    del node.attr[:]
    node.attr.extend(kept)


def no_callers(node: Node, device: set[int]) -> None:
    if node.id in device:
        del node.ctrl_deps[:]
        del node.data_deps[:]


def other_name(node: Node, device: set[int]) -> None:
    if node.id in device:
        node.name = "?"


def other_id(node: Node, device: set[int]) -> None:
    if node.id not in device:
        node.id += 100_000


@pytest.mark.parametrize(
    ("spoil", "failed"),
    [(no_successors, "successors"), (no_times, "gaps"), (no_callers, "launching operators"),
     (other_name, "device events"), (other_id, "operators")],
)  # fmt: skip
def test_a_defect_of_a_linker_fails(spoil: Callable[[Node, set[int]], None], failed: str, tmp_path: Path) -> None:
    name = "gpu_shaped_from_cpu"
    convert(link(*files(name)), tmp_path / "good.et")
    metadata, nodes = read_chakra(tmp_path / "good.et")
    kept = list(nodes)
    device = {node.id for node in kept if any(a.name == "is_cpu_op" and not a.bool_val for a in node.attr)}
    for node in kept:
        spoil(node, device)
    write_chakra(tmp_path / f"{name}.0.et", metadata, kept)
    verdicts = {verdict.test: verdict for verdict in run_case(case_of(name), read_output(tmp_path / f"{name}.0.et"))}
    assert verdicts[failed].ok is False


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


def test_edges_that_reading_infers_are_not_the_linkers(tmp_path: Path) -> None:
    """ET+ of Chakra's linker has none: whether anything waits for the device is not recorded."""
    name = "gpu_shaped_from_cpu"
    link(*files(name)).write(tmp_path / f"{name}.json")
    document: Document = read_json(tmp_path / f"{name}.json")
    for key in ("edges", "runtime", "etplus"):
        document.pop(key)
    (tmp_path / f"{name}.json").write_text(json.dumps(document))
    verdicts = {verdict.test: verdict.ok for verdict in run_case(case_of(name), read_output(tmp_path / f"{name}.json"))}
    assert verdicts["successors"] is None and verdicts["operators"] and verdicts["gaps"]


def test_it_gives_the_pairs_and_takes_what_is_linked(tmp_path: Path) -> None:
    assert main(["--pairs", str(tmp_path / "pairs")]) == 0
    index = json.loads((tmp_path / "pairs" / "conformance.json").read_bytes())
    assert [case["name"] for case in index["cases"]] == NAMES
    for name in NAMES[:2]:
        et, kineto = ((tmp_path / "pairs" / f"{name}.{kind}.json.gz") for kind in ("et", "kineto"))
        assert json.loads(gzip.decompress(et.read_bytes()) if et.read_bytes()[:1] == b"\x1f" else et.read_bytes())
        link(et, kineto).write(tmp_path / f"{name}.json")
    outputs = [str(tmp_path / f"{name}.json") for name in NAMES[:2]]
    assert main([*outputs, "--json", str(tmp_path / "verdicts.json")]) == 0
    verdicts = json.loads((tmp_path / "verdicts.json").read_bytes())
    assert list(verdicts) == outputs and all(one["ok"] for found in verdicts.values() for one in found)


@pytest.mark.parametrize("words", [[], ["other.json"], ["x.json", "--case", "train"], ["train_cpu.json"]])
def test_wrong_usage(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(words)
    with pytest.raises(UsageError):
        case_of("gpu_shaped")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8), st.integers(1, 2)), max_size=8))
@examples(100)
def test_gaps_against_counting_every_ns(calls: list[tuple[int, int, int]]) -> None:
    total = 0
    for thread in {one[2] for one in calls}:
        mine = [(ts, ts + dur) for ts, dur, of in calls if of == thread]
        covered = {at for begin, end in mine for at in range(begin, end)}
        last = max(begin for begin, _ in mine)
        total += sum(at not in covered for at in range(min(begin for begin, _ in mine), last))
    assert gaps_ns(calls) == total
