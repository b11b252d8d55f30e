"""The library's front door: kinds of input, options, errors, and the whole report (linker/report.py)."""

import gzip
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.linker import join as join_module
from etplus.linker import link, pipeline
from etplus.trace.errors import TraceFormatError
from etplus.trace.trace import Trace
from made_joins import PAIR_ET, PAIR_KINETO
from repeated_steps import recorded, training
from support import assert_valid, fixture_pair, plain, run_python

ET, KINETO = fixture_pair("pairs/one_of_n")


def linked_events(result: Trace) -> dict[int, int]:
    document = result.to_dict()
    assert_valid(document)
    return {node["id"]: node["kineto_event"] for node in document["nodes"] if "link" in node}


EXPECTED = linked_events(link(ET, KINETO))


def test_importing_is_cheap_and_a_link_needs_nothing_of_torch_or_other_formats(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import etplus; print([m for m in ('numpy', 'networkx', 'msgspec') if m in sys.modules])\n"
        "from etplus.cli.main import trace_link\n"
        f"files = ['--et-file', {str(ET)!r}, '--kineto-file', {str(KINETO)!r}]\n"
        f"trace_link([*files, '-o', {str(tmp_path / 'p.json')!r}])\n"
        "print([m for m in ('google', 'sqlite3', 'numpy.ma', 'tqdm', 'pandas') if m in sys.modules])"
    )
    assert run_python(code).stdout == "[]\n[]\n"


def test_paths_bytes_and_file_objects_give_the_same_links() -> None:
    assert linked_events(link(ET.read_bytes(), io.BytesIO(plain(KINETO)))) == EXPECTED  # type: ignore[arg-type]
    with ET.open("rb") as et_file, gzip.open(KINETO) as kineto_file:
        assert linked_events(link(et_file, kineto_file)) == EXPECTED  # type: ignore[arg-type]


def test_strict_refuses_broken_files_and_otherwise_they_are_recovered() -> None:
    broken = plain(KINETO)[:-300]
    with pytest.raises(TraceFormatError, match="drop --strict"):
        link(ET, broken, strict=True)
    result = link(ET, broken)
    assert result.report.warnings and linked_events(result)


def test_repetitions_are_looked_for_from_eight_unlaunched_events_on() -> None:
    for queued in (7, 8):
        assert ("repetition" in link(None, recorded([training()] * 4, queued)[0]).report.gpu) == (queued == 8)


def test_a_broken_compiler_file_next_to_the_trace_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "kernel_information.json").write_bytes(b"{\"('x")
    (tmp_path / "kineto.json").touch()
    kineto: Any = SimpleNamespace(file=str(tmp_path / "kineto.json"))
    assert not pipeline.compile_files(kineto, None).files
    with pytest.raises(TraceFormatError):
        pipeline.compile_files(kineto, [tmp_path / "kernel_information.json"])


def test_an_et_plus_file_as_input_is_refused(tmp_path: Path) -> None:
    link(ET, KINETO).write(tmp_path / "plus.json")
    with pytest.raises(TraceFormatError, match="already linked"):
        link(tmp_path / "plus.json", KINETO)


def test_without_an_et_calls_of_the_whole_trace_are_kept() -> None:
    document = link(None, orjson.dumps(PAIR_KINETO)).to_dict()
    assert [call["kineto_event"] for call in document["runtime"]] == [10, 3, 11, 5]
    report = document["etplus"]["link"]
    kernels = report["gpu"]["categories"]["kernel"]
    assert kernels == {"total": 4, "attached": 4, "by_method": {"correlation": 3}, "unattached": {}}
    assert report["gpu"]["attached_time_ns"] == report["gpu"]["time_ns"] == 29_000
    assert report["identity"] is None and document["etplus"]["nodes_from"] == "kineto"


@pytest.mark.parametrize(("shift", "kept"), [(0, [3, 11, 5]), (6, [3, 11, 5]), (-1, [11, 5])])
def test_runtime_calls_of_the_window_with_its_ends(shift: int, kept: list[int]) -> None:
    kineto = json.loads(json.dumps(PAIR_KINETO))
    events = kineto["traceEvents"]
    events[3]["ts"] = {0: 16, 6: 10, -1: 9.999}[shift]
    events[5].update(ts=450, dur=1)
    document = link(json.dumps(PAIR_ET).encode(), json.dumps(kineto).encode(), whole_job=True).to_dict()
    assert [call["kineto_event"] for call in document["runtime"]] == kept
    events[5]["ts"] = 450.001
    document = link(json.dumps(PAIR_ET).encode(), json.dumps(kineto).encode(), whole_job=True).to_dict()
    assert [call["kineto_event"] for call in document["runtime"]] == kept[:-1]


def test_recorded_edges_of_data_are_there_unasked_and_those_of_storages_if_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline, "recorded_data", lambda *_: (np.array([0]), np.array([1])))
    monkeypatch.setattr(join_module, "data_edges", lambda *_: (np.array([1]), np.array([3])))
    for asked, expected in ((False, [[4, 6]]), (True, [[4, 6], [6, 9]])):
        result = link(orjson.dumps(PAIR_ET), orjson.dumps(PAIR_KINETO), data_dependencies=asked)
        assert [edge[:2] for edge in result.to_dict()["edges"] if edge[2] == "data"] == expected
