"""`convert` and `etplus convert`: every format from every input, ranks found, and one clear line where it cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest
from etplus.converters.chakra import write_et
from etplus.converters.conversion import convert
from etplus.converters.registry import exporters, format_of, suffixes
from etplus.trace.errors import UsageError
from etplus_files import DLRM, cpu, document_of, etplus, gpu, linked
from support import call, fixture_pair, refused, succeeds

NAME = "pairs/gpu_shaped_from_cpu"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same trace as ET+ and as Chakra."""
    folder = tmp_path_factory.mktemp("pair")
    linked(NAME).write(folder / "in.json")
    write_et(document_of(NAME), folder / "in.0.et")
    return folder / "in.json", folder / "in.0.et"


def content(path: Path) -> list[bytes]:
    """Of a file, or of the files of a folder."""
    return [file.read_bytes() for file in (sorted(path.rglob("*.*")) if path.is_dir() else [path])]


@pytest.mark.parametrize("to", exporters())
def test_every_format_has_equal_nodes_from_both_kinds_of_file(pair: tuple[Path, Path], to: str, tmp_path: Path) -> None:
    results = []
    for source in pair:
        out = tmp_path / f"{source.name}.out"
        more: Any = {"replicate": 2} if to == "astra-sim" else {}
        done = convert(source, out, to=to, **more)
        first, *others = map(Path, done.files)
        assert first == (out.with_name(f"{out.name}.0.et") if more else out) and bool(others) == bool(more)
        results.append(done.nodes)
    before = content(first)
    convert(source, out, to=to, **more)
    assert content(first) == before, "not deterministic"
    assert results[0] == results[1] > 0


def test_groups_go_beside_the_files(tmp_path: Path) -> None:
    group = {"pg_name": "tp", "pg_ranks": [0, 1], "collective": "allreduce", "bytes": 64}
    for rank in (0, 1, 2):
        more = {"comm": group, "pg_name": "tp"} if rank < 2 else {}
        kernel = gpu(4, "ncclDevKernel_AllReduce" if more else "gemm", 1, 2, **more)
        etplus([cpu(3, "op", 0, 9), kernel], rank=rank, world_size=3).write(tmp_path / f"r{rank}.json")
    files = [tmp_path / f"r{rank}.json" for rank in (0, 1, 2)]
    for to in ("chakra", "astra-sim"):
        done, degraded = convert(files, tmp_path / to, to=to), convert(files, tmp_path / f"d-{to}", to=to, degrade=True)
        assert Path(done.files[1]).read_bytes() == Path(degraded.files[1]).read_bytes(), "all ranks match already"
        assert json.loads((tmp_path / f"{to}.comm_groups.json").read_bytes()) == {"1": [0, 1]}
        assert json.loads((tmp_path / f"{to}.comm_group_names.json").read_bytes()) == {"1": "tp"}
        assert len(done.files) == (5 if to == "chakra" else 9)  # and what ASTRA-sim runs it with
        succeeds("check", tmp_path / to, "--profile", to)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{json}", "-o", "{json}", "--to", "chrome"], "the output would replace an input"),
        (["{json}", "-o", "foo.bar"], "foo.bar: unknown extension; choose a format with --to, or one of .et, .goal, "),
        (["{json}", "{et}", "-o", "out.et"], "are both rank 0"),
        (["none.json", "-o", "out.et"], "none.json: no such file"),
        (["{json}", "-o", "{et}/folder/out.et"], "cannot be written"),
        (["{json}", "-o", "out.et", "--rank", "3"], "no file for rank 3; there are ranks 0"),
        (["{json}", "-o", "out.et", "--roofline", "2"], "chakra has no option 'roofline'; its options: memory_nodes, "),
        (["{json}", "-o", "g.dot", "--option", "max_nodes"], "--option 'max_nodes': expected NAME=VALUE"),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(
    pair: tuple[Path, Path], tmp_path: Path, arguments: list[str], message: str
) -> None:
    et, _ = fixture_pair(NAME)
    places = {"json": pair[0], "et": pair[1], "folder": pair[0].parent, "et-json": et}
    before = sorted(tmp_path.iterdir())
    done = call("convert", *[argument.format(**places) for argument in arguments], cwd=tmp_path)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 2
    assert message in lines[-1]
    assert "Traceback" not in done.stderr.decode()
    assert sorted(tmp_path.iterdir()) == before, "something was left behind"


def test_the_extension_chooses_the_format() -> None:
    for name, to in {
        "a.et": "chakra", "a.0.ET": "chakra", "a.et.gz": "chakra", "a.jsonl": "jsonl", "a.etplus.json.gz": "etplus",
        "a.perfetto.json": "chrome", "a.chrome.json.gz": "chrome", "a.graphml.gz": "graphml", "a.dot": "dot",
        "a.npz": "npz", "a.pftrace.gz": "pftrace", "a.svg": "dot", "b.PDF": "dot",
    }.items():  # fmt: skip
        assert format_of(name) == to
    assert {format_of(f"x{suffix}") for suffix in suffixes()} == exporters().keys() - {
        "astra-sim", "json", "networkx-json"
    }  # fmt: skip
    for name in ("a.json", "a.json.gz", "et", "a.svg.gz", "a.npz.gz", "-"):
        with pytest.raises(UsageError, match="unknown extension"):
            format_of(name)


def test_all_files_appear_or_none(tmp_path: Path) -> None:
    linked(NAME).write(tmp_path / "a.json")
    (tmp_path / "b.json").write_bytes(b'{"schema": "1"}')
    before = sorted(tmp_path.iterdir())
    assert "b.json" in refused("convert", "a.json", "b.json", "--to", "npz", "-o", "set/below", cwd=tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    for rank in (0, 2):
        etplus([cpu(3, "op", 0)], rank=rank).write(tmp_path / f"rank{rank}.json")
    inputs = [tmp_path / f"rank{rank}.json" for rank in (0, 2)]
    with pytest.raises(UsageError, match=r"rank 1 is missing, but ASTRA-sim needs all ranks, starting at 0; .*--renum"):
        convert(inputs, tmp_path / "t", to="astra-sim")
    assert len(convert(inputs, tmp_path / "t", to="chakra").files) == 2
    with pytest.raises(UsageError, match=r"each of the 2 ranks needs its own file; pass a prefix"):
        convert(inputs, tmp_path / "t.et", to="chakra", as_prefix=False)


def test_the_command_writes_a_set_that_check_passes(tmp_path: Path) -> None:
    for name in DLRM[:2]:
        linked(name).write(tmp_path / f"{name.rpartition('.')[2]}.json.gz")
    done = call("convert", "rank0.json.gz", "rank1.json.gz", "--to", "astra-sim", "--out", "job", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    told = done.stderr.decode()
    assert told.startswith("wrote   job.0.et (") and "\nwrote   job.1.et\nwrote   job.comm_groups.json\n" in told
    assert "note    2 of 8 ranks were given" in told
    succeeds("check", "job", "--profile", "astra-sim", cwd=tmp_path)


def test_convert_writes_jsonl_to_standard_output(pair: tuple[Path, Path]) -> None:
    done = succeeds("convert", pair[0], "-o", "-", "--to", "jsonl")
    head, *nodes = map(json.loads, done.stdout.splitlines())
    names = {node["name"] for node in linked(NAME).to_dict()["nodes"]}
    assert head["version"] and {node["name"] for node in nodes} >= names
