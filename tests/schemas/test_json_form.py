"""Chakra's JSON form (`workload_graph`) reads like the .et file of the same nodes."""

from __future__ import annotations

import json
from pathlib import Path

import etplus
import pytest
from chakra_sets import Ranks, data_parallel, pipeline, write_set
from etplus import convert
from etplus.schemas.chakra.stream import read_chakra
from etplus.trace.errors import TraceFormatError


def as_json(folder: Path, ranks: Ranks) -> list[str]:
    """The files of a set in the JSON form, with the keys that Chakra's feeder reads."""
    files = []
    for rank, nodes in enumerate(ranks):
        records = [
            {
                "Id": node.id, "Name": node.name, "NodeType": node.type, "runtime": node.duration_micros,
                "data_deps": list(node.data_deps),
                **{given.name: getattr(given, str(given.WhichOneof("value"))) for given in node.attr},
            }
            for node in nodes
        ]  # fmt: skip
        path = folder / f"j.{rank}.json"
        path.write_text(json.dumps({"workload_graph": records}))
        files.append(str(path))
    return files


@pytest.mark.parametrize("made", [data_parallel, pipeline], ids=lambda made: made.__name__)
def test_it_is_converted_to_the_messages_of_the_et_file(made: object, tmp_path: Path) -> None:
    ranks: Ranks = made(4)  # type: ignore[operator]
    write_set(tmp_path, ranks)
    convert(as_json(tmp_path, ranks), tmp_path / "out", to="chakra")
    for rank in range(4):
        given, written = (list(read_chakra(tmp_path / f"{name}.{rank}.et")[1]) for name in ("t", "out"))
        assert written == given


def test_numbers_are_taken_for_integers_and_names_of_groups(tmp_path: Path) -> None:
    node = {"Id": 1, "Name": "c", "NodeType": 7, "comm_type": 0, "comm_size": 4e6, "pg_name": 3, "is_cpu_op": 0}
    path = tmp_path / "j.0.json"
    path.write_text(json.dumps({"workload_graph": [node]}))
    (comm,) = etplus.load(path).comm.values()
    assert (comm.bytes, comm.pg_name) == (4_000_000, "3")


@pytest.mark.parametrize("text", [
    '{"workload_graph": 3}', '{"workload_graph": [{"Id": 1}]}', '{"workload_graph": [{',
    '{"workload_graph": [{"Id": 1, "Name": "c", "NodeType": 7, "comm_type": 0, "comm_size": 1.5}]}',
])  # fmt: skip
def test_a_broken_file_is_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "j.0.json"
    path.write_text(text)
    with pytest.raises(TraceFormatError, match=r"j\.0\.json"):
        etplus.load(path)
