"""The library's front door: every kind of input, every option, errors that say what is wrong."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import etplus
import orjson
import pytest
from etplus.linker import LinkReport, link
from etplus.linker.match import METHODS
from etplus.trace.errors import EtplusError, TraceFormatError, UsageError
from etplus.trace.trace import Trace
from support import Document, assert_valid, fixture_pair, plain, read_json, shared_pair

ET, KINETO = fixture_pair("pairs/one_of_n")


def linked_events(result: Trace) -> dict[int, int]:
    document = result.to_dict()
    assert_valid(document)
    return {node["id"]: node["kineto_event"] for node in document["nodes"] if "link" in node}


EXPECTED = linked_events(link(ET, KINETO))


def test_a_link_that_is_only_written_makes_no_columns_of_the_trace(tmp_path: Path) -> None:
    linked = link(ET, KINETO)
    linked.write(tmp_path / "plus.json")
    assert linked.report.ops["linked"] and linked.file and linked.captured is None
    assert not {"ts", "header", "edges"} & vars(linked).keys()
    read = etplus.load(tmp_path / "plus.json")
    assert linked.ts.tolist() == read.ts.tolist() and len(linked) == len(read)
    with pytest.raises(AttributeError, match="nothing"):
        getattr(linked, "nothing")  # noqa: B009 (mypy knows that there is none)


def test_a_link_imports_nothing_of_other_formats(tmp_path: Path) -> None:
    code = (
        "import sys; from etplus.cli.main import trace_link\n"
        f"files = ['--et-file', {str(ET)!r}, '--kineto-file', {str(KINETO)!r}]\n"
        f"trace_link([*files, '-o', {str(tmp_path / 'p.json')!r}])\n"
        "print([m for m in ('google', 'sqlite3', 'numpy.ma', 'tqdm', 'pandas') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_paths_bytes_and_file_objects_give_the_same_links() -> None:
    for et, kineto in (
        (str(ET), str(KINETO)),
        (plain(ET), plain(KINETO)),
        (ET.read_bytes(), io.BytesIO(plain(KINETO))),
    ):
        assert linked_events(link(et, kineto)) == EXPECTED  # type: ignore[arg-type]
    with ET.open("rb") as et_file, gzip.open(KINETO) as kineto_file:
        assert linked_events(link(et_file, kineto_file)) == EXPECTED  # type: ignore[arg-type]


def test_the_public_names() -> None:
    result = etplus.link(ET, KINETO)
    assert isinstance(result, Trace) and isinstance(result.report, LinkReport)
    assert issubclass(TraceFormatError, etplus.EtplusError) and issubclass(UsageError, EtplusError)
    assert set(etplus.__all__) >= {"link", "EtplusError"}
    with pytest.raises(AttributeError, match="no attribute 'nonesuch'"):
        etplus.nonesuch  # noqa: B018


def test_importing_the_package_is_cheap() -> None:
    """numpy and the rest come with the first use, so that `--help` and completion are quick."""
    code = "import sys, etplus; print([m for m in ('numpy', 'networkx', 'msgspec') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert done.stdout == b"[]\n"


def test_linking_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from etplus.linker import link; print(link(*sys.argv[1:]).report.linked_share)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ET), str(KINETO)], capture_output=True, check=True, timeout=60
    )
    assert done.stdout == b"1.0\n"


@pytest.mark.parametrize("method", METHODS)
def test_each_method_alone(method: str) -> None:
    result = link(ET, KINETO, match=method)
    found = linked_events(result)
    assert result.report.method in (method, "")
    if method == "ids":
        assert found == EXPECTED
    for node in result.to_dict()["nodes"]:
        if node.get("link") == "certain":
            assert EXPECTED[node["id"]] == node["kineto_event"], "a certain link must be right"


@pytest.mark.parametrize("options", [{"match": "magic"}, {"match": ""}, {"iteration": "-1"}, {"iteration": "best"}])
def test_unknown_options_name_the_known_ones(options: Any) -> None:
    with pytest.raises(UsageError, match="one of: "):
        link(ET, KINETO, **options)


@pytest.mark.parametrize("iteration", ["first", "last", "median", "0", "2", "1000"])
def test_the_choice_of_an_iteration_does_not_touch_links_by_ids(iteration: str) -> None:
    assert linked_events(link(ET, KINETO, iteration=iteration)) == EXPECTED


def test_strict_leaves_ambiguous_nodes_unlinked() -> None:
    other_run = read_json(ET)
    other_run["pid"] += 1
    result = link(orjson.dumps(other_run), KINETO, strict=True)
    assert linked_events(result) == {}
    assert result.report.ops["unlinked"] == {"ambiguous (--strict)": len(EXPECTED)}
    assert linked_events(link(ET, KINETO, strict=True)) == EXPECTED


def test_strict_refuses_broken_files_and_otherwise_they_are_recovered() -> None:
    broken = plain(KINETO)[:-300]
    with pytest.raises(TraceFormatError, match="drop --strict"):
        link(ET, broken, strict=True)
    result = link(ET, broken)
    assert result.report.warnings and linked_events(result)


def without_ids(et: Document, kineto: Document) -> tuple[bytes, bytes]:
    for node in et["nodes"]:
        for attr in node["attrs"]:
            if attr["name"] == "rf_id":
                attr["value"] = 0
    for event in kineto["traceEvents"]:
        for key in ("Record function id", "External id", "Ev Idx"):
            event.get("args", {}).pop(key, None)
    return json.dumps(et).encode(), json.dumps(kineto).encode()


@pytest.mark.parametrize("exact", [True, False])
def test_without_ids_no_certain_link_is_wrong(exact: bool) -> None:
    for name in ("demo/train_cpu", "pairs/one_of_n", "pairs/two_threads"):
        et, kineto = fixture_pair(name)
        expected = linked_events(link(et, kineto))
        result = link(*without_ids(read_json(et), read_json(kineto)), exact_match=exact)
        document = result.to_dict()
        assert_valid(document)
        assert result.report.method != "ids" and (result.report.method != "tree" or not exact)
        linked = [node for node in document["nodes"] if "link" in node]
        assert len(linked) > 0.9 * len(expected)
        assert all(expected[node["id"]] == node["kineto_event"] for node in linked if node["link"] == "certain")


def test_two_unlike_programs_are_not_linked() -> None:
    et = shared_pair("cpu-pairs/lstm_layer")[0]
    kineto = shared_pair("cpu-pairs/conv_same")[1]
    result = link(*without_ids(read_json(et), read_json(kineto)))
    assert result.report.ops["certain"] == 0
    assert result.report.linked_share < 0.1


def test_inputs_are_never_touched(tmp_path: Path) -> None:
    for path in (ET, KINETO):
        (tmp_path / path.name).write_bytes(path.read_bytes())
        (tmp_path / path.name).chmod(0o444)
    link(tmp_path / ET.name, tmp_path / KINETO.name).write(tmp_path / "plus.json")
    assert (tmp_path / ET.name).read_bytes() == ET.read_bytes()
    assert (tmp_path / KINETO.name).read_bytes() == KINETO.read_bytes()


def test_an_et_plus_file_as_input_is_refused(tmp_path: Path) -> None:
    link(ET, KINETO).write(tmp_path / "plus.json")
    with pytest.raises(TraceFormatError, match="already linked"):
        link(tmp_path / "plus.json", KINETO)
