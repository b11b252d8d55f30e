"""What each exporter says of what it wrote: files, nodes, notes and what was left out."""

import re
from pathlib import Path
from typing import Any

import pytest
from etplus.converters.builtin import GraphOptions
from etplus.converters.conversion import convert
from etplus.converters.exporter import Conversion
from etplus.trace.errors import ConvertError, UsageError
from etplus.trace.trace import Trace
from etplus_files import cpu, etplus, gpu, step_by_hand
from support import read_json

SILENT = "warning: no rank communicates, so the simulated time does not depend on the network"
ROWS = 17
"""Of `step_by_hand`; of these 15 have a time."""


def _config(prefix: str) -> list[str]:
    return [f"{prefix}.{of}" for of in ("network.yml", "system.json", "memory.json", "run.sh")]


def of_rank(rank: int, **more: Any) -> Trace:
    """A rank that computes, and communicates nothing."""
    return etplus([cpu(3, "aten::mm", 0, 100), gpu(7, "gemm", 40, 50, **more)], [], [], rank=rank, world_size=2)


def names(done: Conversion, folder: Path) -> list[str]:
    """Of its files, all of which are there, and no others."""
    assert sorted(done.files) == sorted(str(path) for path in folder.iterdir() if path.is_file())
    return [Path(file).name for file in done.files]


def test_a_chakra_file_keeps_its_name_and_a_prefix_gets_the_rank(tmp_path: Path) -> None:
    one = convert(step_by_hand(), tmp_path / "job.3.et")
    assert names(one, tmp_path) == ["job.3.et"] and one.nodes == ROWS
    coupled = "computation waits for 1 of 1 collectives; nothing waits for 0"
    assert one.notes == (coupled,) and one.counts == {}
    assert convert(step_by_hand(), tmp_path / "job", to="chakra", as_prefix=True).files[0].endswith("/job.0.et")


def test_ranks_that_do_not_communicate_get_a_note(tmp_path: Path) -> None:
    both = [of_rank(1), of_rank(0)]
    done = convert(both, tmp_path / "job", to="chakra")
    assert names(done, tmp_path) == ["job.0.et", "job.1.et"] and done.nodes == 8
    assert done.notes == (SILENT,)
    assert convert(both[:1], tmp_path / "one.et").notes == ()
    with pytest.raises(UsageError, match=r"^each of the 2 ranks needs its own file; pass a prefix without .et \(-o"):
        convert(both, tmp_path / "job.et", as_prefix=False)
    simulated = convert(both, tmp_path / "sim", to="astra-sim")
    expected = ["sim.0.et", "sim.1.et", "sim.comm_groups.json", *_config("sim")]
    assert [Path(file).name for file in simulated.files] == expected


def test_a_rank_that_waits_for_one_that_is_not_there(tmp_path: Path) -> None:
    both = [step_by_hand(), of_rank(1)]
    for to in ("chakra", "astra-sim"):
        with pytest.raises(ConvertError):
            convert(both, tmp_path / "job", to=to)
        done = convert(both, tmp_path / "job", to=to, degrade=True)
        assert "0.030 ms of communication became computations of fixed duration" in done.notes
        assert SILENT not in done.notes


def test_astra_sim_writes_a_file_for_each_replica(tmp_path: Path) -> None:
    done = convert(step_by_hand(), tmp_path / "job", to="astra-sim", replicate=3, as_prefix=True)
    assert [Path(file).name for file in done.files] == [
        "job.0.et", "job.1.et", "job.2.et", "job.comm_groups.json", *_config("job")
    ]  # fmt: skip


def test_one_rank_converts_to_json_lines_json_or_etplus(tmp_path: Path) -> None:
    trace = step_by_hand()
    trace.save(tmp_path / "t.0.et")
    for name, to in (("a.jsonl", None), ("a.json", "json"), ("a.etplus.json", None)):
        done = convert(trace, tmp_path / name, to=to)
        again = convert(tmp_path / "t.0.et", tmp_path / f"again.{name}", to=to)
        assert (done.files, done.nodes, done.notes) == ((str(tmp_path / name),), ROWS, ()), name
        assert (tmp_path / name).read_bytes() == (tmp_path / f"again.{name}").read_bytes() and again.nodes == ROWS
    assert (tmp_path / "a.jsonl").read_bytes().count(b"\n") == ROWS + 1
    assert (tmp_path / "a.json").read_bytes().startswith(b"[")
    lifted = convert(trace, tmp_path / "b.etplus.json", schema="1.1.1")
    assert lifted.nodes == ROWS and read_json(tmp_path / "b.etplus.json")["schema"].startswith("1.1.1")


def test_timelines_and_graphs_hold_all_ranks(tmp_path: Path) -> None:
    both = [step_by_hand(), of_rank(1)]
    chrome = convert(both, tmp_path / "t.perfetto.json")
    assert (chrome.nodes, chrome.counts) == (15 + 2, {}) == (convert(both, tmp_path / "t.pftrace").nodes, {})
    for to in ("graphml", "dot", "networkx-json"):
        whole = convert(both, tmp_path / "g", to=to)
        assert (whole.nodes, whole.notes) == (ROWS + 4, ()), to
        part = convert(both, tmp_path / "g", to=to, max_nodes=ROWS - 1)
        assert (part.nodes, part.notes) == (ROWS + 3, (f"{ROWS + 3} of {ROWS + 4} nodes were selected",))


def test_arrays_of_one_trace_or_a_dataset_of_several(tmp_path: Path) -> None:
    both = [step_by_hand(), of_rank(1)]
    for trace in both:
        trace.save(tmp_path / f"t{trace.rank}.etplus.json")
    files = [tmp_path / "t0.etplus.json", tmp_path / "t1.etplus.json"]
    one = convert(files[0], tmp_path / "one.npz")
    assert one.files == (str(tmp_path / "one.npz"),) and 0 < one.nodes <= ROWS
    several = convert(files, tmp_path / "set", to="npz")
    assert len(several.files) == 2 and several.nodes == one.nodes + convert(files[1], tmp_path / "two.npz").nodes
    alone = convert(files[0], tmp_path / "single", to="npz", as_prefix=True)
    assert len(alone.files) == 1 and Path(alone.files[0]).parents[1] == tmp_path / "single"
    with pytest.raises(UsageError, match=r"^2 graphs form a dataset; pass a folder name without .npz as the output"):
        convert(files, tmp_path / "x.npz", as_prefix=False)


def test_conversions_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    trace = step_by_hand()
    for given, options, message in (
        ([], {"to": "dot"}, "nothing to convert; give an ET+ or .et file"),
        ([trace, trace], {"to": "jsonl"}, "jsonl files contain one rank; give one file, or choose a rank with --rank"),
        (trace, {"to": "jsonl", "options": GraphOptions()}, "jsonl takes NoOptions as options, not GraphOptions"),
    ):
        with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
            convert(given, tmp_path / "x", **options)  # type: ignore[arg-type]
    chosen = convert(trace, tmp_path / "g.dot", options=GraphOptions(max_nodes=3, subtree="aten::mm"), max_nodes=2)
    assert chosen.nodes == 2
    assert convert([of_rank(0), of_rank(1)], tmp_path / "one.jsonl", rank=1).nodes == 4


def test_only_pictures_are_limited_to_what_can_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etplus.converters.graph.PICTURE_NODES", 2)
    monkeypatch.setattr("etplus.converters.graph._drawn", lambda text, suffix: text)
    assert convert(step_by_hand(), tmp_path / "g.dot").nodes == ROWS
    done = convert(step_by_hand(), tmp_path / "g.svg")
    assert done.nodes == 2 and done.notes[0].startswith(f"the 2 nodes that start first are drawn, out of {ROWS}; ")
    assert convert([step_by_hand(), of_rank(1)], tmp_path / "g.png").nodes == 1 + 1
    assert convert(step_by_hand(), tmp_path / "g.svg", max_nodes=6).notes == (f"6 of {ROWS} nodes were selected",)


@pytest.mark.parametrize("to", ["chrome", "pftrace", "goal", "jsonl", "etplus", "dot", "npz"])
def test_an_output_is_refused_before_the_input_is_read(to: str, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("no trace")
    with pytest.raises(UsageError, match="the output would replace an input"):
        convert(tmp_path / "broken.json", tmp_path / "broken.json", to=to)
