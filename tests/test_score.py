"""Every recorded CPU pair against its true links, by the scoring tool beside the traces; and the real GPU pair."""

import subprocess
import sys
from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson
import pytest
from etplus.linker import link
from etplus.schemas.execution_trace.read_et import read_execution_trace
from support import (
    GPU_CATEGORIES,
    SHARED,
    Document,
    assert_valid,
    cpu_pairs,
    plain,
    read_json,
    shared_pair,
    shared_trace,
)


def linked(name: str, tmp_path: Path, **options: Any) -> tuple[Path, Document, Path]:
    """Link a recorded pair; the file, its content, and the true links. Cycles of one run share the ET."""
    folder = "cpu-pairs"
    et, kineto = (
        shared_trace(f"{folder}/{n}.json.gz") for n in (f"{name.removesuffix('.cycle1')}.et", f"{name}.kineto")
    )
    link(et, kineto, **options).write(tmp_path / "plus.json")
    document = read_json(tmp_path / "plus.json")
    assert_valid(document)
    return tmp_path / "plus.json", document, shared_trace(f"{folder}/{name}.links.json")


@pytest.mark.slow
@pytest.mark.parametrize("name", cpu_pairs())
def test_a_recorded_pair_with_ids_is_linked_without_errors(name: str, tmp_path: Path) -> None:
    plus, document, links = linked(name, tmp_path)
    words = [sys.executable, str(SHARED / "tools" / "score_links.py"), str(plus), str(links)]
    scored = orjson.loads(subprocess.run(words, capture_output=True, check=True, timeout=60).stdout)
    assert scored["false_certain"] == 0
    if scored["truth"] == 0:  # the two files have not one call in common
        assert document["etplus"]["link"]["ops"]["certain"] == 0
        return
    assert (scored["recall"], scored["certain_recall"]) == (1.0, 1.0)
    assert (scored["wrong"], scored["extra"], scored["equivalent"]) == (0, 0, 0)
    assert document["etplus"]["link"]["method"] == "ids"
    assert document["etplus"]["link"]["kineto"]["cpu_ops_not_in_et"] == len(read_json(links)["kineto_unlinked"])


def test_a_pair_without_a_call_in_common_is_not_linked_by_ids(tmp_path: Path) -> None:
    _, document, _ = linked("conv_other", tmp_path, match="ids")
    assert document["etplus"]["link"]["ops"]["linked"] == 0


def test_a_pair_with_broken_json_is_linked_with_a_warning(tmp_path: Path) -> None:
    et, kineto = shared_pair("cpu-pairs/weird_quotes")
    result = link(et, kineto)
    result.write(tmp_path / "plus.json")
    assert_valid(read_json(tmp_path / "plus.json"))
    assert result.report.linked_share == 1.0
    assert sum("is broken" in warning for warning in result.report.warnings) >= 1


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Document]:
    path = tmp_path_factory.mktemp("resnet") / "plus.json"
    link(*shared_pair("gpu-pairs/resnet103")).write(path)
    document = read_json(path)
    assert_valid(document)
    return path.read_bytes(), document


def test_resnet103_is_linked_by_ids_and_known_as_two_runs(resnet: tuple[bytes, Document]) -> None:
    _, document = resnet
    report = document["etplus"]["link"]
    assert report["method"] == "ids" and report["ops"]["linked"] >= 14385
    assert report["ops"]["certain"] == 0 and report["ops"]["unverified"] == report["ops"]["linked"]
    assert any("two runs" in one["says"] for one in report["identity"]["refutes"])
    events = read_json(shared_trace("gpu-pairs/resnet103.kineto.json.gz"))["traceEvents"]
    links = [node for node in document["nodes"] if "link" in node]
    assert len(links) >= 14385 and {node["link"] for node in links} == {"unverified"}
    assert all(events[node["kineto_event"]]["name"] == node["name"] for node in links)


def test_resnet103_has_every_gpu_event(resnet: tuple[bytes, Document]) -> None:
    _, document = resnet
    found = Counter(node["cat"] for node in document["nodes"] if "cat" in node)
    events = read_json(shared_trace("gpu-pairs/resnet103.kineto.json.gz"))["traceEvents"]
    for indices in document["etplus"]["unattached"].values():
        found.update(events[index]["cat"] for index in indices)
    assert found == {"kernel": 2700, "gpu_memcpy": 960, "gpu_memset": 114}
    assert set(found) <= set(GPU_CATEGORIES)


def test_linked_resnet103_is_still_a_valid_execution_trace(resnet: tuple[bytes, Document]) -> None:
    data, document = resnet
    original = plain(shared_trace("gpu-pairs/resnet103.et.json.gz"))
    before = orjson.loads(original)
    assert {key: document[key] for key in before if key != "nodes"} == {k: v for k, v in before.items() if k != "nodes"}
    for old, new in zip(sorted(before["nodes"], key=itemgetter("id")), document["nodes"], strict=False):
        assert old == {key: new[key] for key in old}
    bare = {key: value for key, value in document.items() if key != "etplus"}  # only our own reader minds that key
    seen = read_execution_trace(orjson.dumps(bare))
    assert len(seen) == len(document["nodes"]) and seen.schema == before["schema"]
    gpu = sum(len(orjson.dumps(node)) for node in document["nodes"] if "cat" in node)
    assert len(data) <= 1.5 * len(original) + 1.1 * gpu
