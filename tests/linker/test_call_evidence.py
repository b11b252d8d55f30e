"""Two records of the same calls that contradict each other: numbers, threads, inputs, calls that one side lacks."""

from pathlib import Path
from typing import NamedTuple

import orjson
import pytest
from etplus.jobs.batch import link_many
from etplus.linker import LinkReport, link
from made_traces import op
from support import PID, Document, call, et_document, kineto_document, shared_case, succeeds, with_pid


class Call(NamedTuple):
    """A call as both observers record it: `inputs` are shapes, types and values."""

    name: str = "aten::linear"
    id: int = 0
    seq: int = -1
    tid: int = 1
    inputs: tuple[list[object], list[str], list[object]] = ([[16, 64], [64, 64]], ["float", "float"], ["", ""])

    def node(self, at: int) -> Document:
        shapes, types, values = self.inputs
        tensors = [value if value != "" else [1, 2, 0, 1024, 4, "cpu"] for value in values]
        inputs = {"shapes": shapes, "types": [f"Tensor({one})" if one != "Scalar" else "Double" for one in types],
                  "values": tensors}  # fmt: skip
        own = {"rf_id": self.id, "seq_id": self.seq, "tid": self.tid, "inputs": inputs}
        return {"id": 3 + at, "name": self.name, **own}

    def event(self, at: int) -> Document:
        shapes, types, values = self.inputs
        args: Document = {"Input Dims": shapes, "Input type": types, "Concrete Inputs": [str(one) for one in values]}
        args = args if shapes else {}
        args |= {"Sequence number": self.seq} if self.seq >= 0 else {}
        return op(self.name, 10 * at, 5, args=args, rf_id=self.id, tid=self.tid)


def linked(et: list[Call], kineto: list[Call], pid: int = PID) -> LinkReport:
    documents = (
        et_document([one.node(at) for at, one in enumerate(et)]),
        kineto_document([one.event(at) for at, one in enumerate(kineto)]),
    )
    return link(*map(orjson.dumps, with_pid(*documents, pid))).report


def refuted(report: LinkReport) -> dict[str, str]:
    assert report.identity is not None and report.ops["linked"] > 0
    assert not (report.identity.refutes and report.ops["certain"])
    return {clue.by: clue.says for clue in report.identity.refutes}


def calls(count: int) -> list[Call]:
    return [Call(id=1 + at, seq=7 + at) for at in range(count)]


def changed(made: list[Call], at: int, **fields: object) -> list[Call]:
    return [*made[:at], made[at]._replace(**fields), *made[at + 1 :]]  # type: ignore[arg-type]


SHAPES, TYPES, VALUES = Call().inputs


@pytest.mark.parametrize(
    ("ours", "theirs", "says"),
    [
        ((SHAPES, TYPES, VALUES), ([[64, 64], [64, 64]], TYPES, VALUES),
         "float [16, 64] in the ET, float [64, 64] in the Kineto trace (input 1)"),
        ((SHAPES, TYPES, VALUES), ([[16, 64], [128, 64]], TYPES, VALUES),
         "float [64, 64] in the ET, float [128, 64] in the Kineto trace (input 2)"),
        ((SHAPES, TYPES, VALUES), (SHAPES, ["double", "float"], VALUES),
         "float [16, 64] in the ET, double [16, 64] in the Kineto trace (input 1)"),
        (([[8], []], ["float", "Scalar"], ["", -0.1]), ([[8], []], ["float", "Scalar"], ["", -0.01]),
         "-0.1 in the ET, -0.01 in the Kineto trace (input 2)"),
    ],
)  # fmt: skip
def test_calls_with_different_inputs_are_evidence_of_two_runs(ours: object, theirs: object, says: str) -> None:
    et, kineto = (changed(calls(4), 2, inputs=inputs) for inputs in (ours, theirs))
    assert linked(et, changed(et, 2, inputs=([], [], []))).ops["certain"] == 4, "Kineto recorded none"
    assert linked(et, et).ops["certain"] == 4
    expected = f"two runs: 1 of 4 compared calls have different inputs, such as aten::linear: {says}"
    assert refuted(linked(et, kineto)) == {"inputs": expected}


@pytest.mark.parametrize(("at", "compared"), [(0, True), (383, True), (384, False), (471, False), (472, True)])
def test_the_first_384_and_the_last_128_calls_are_compared(at: int, compared: bool) -> None:
    kineto = changed(calls(600), at, inputs=([[1], [2]], TYPES, VALUES))
    assert ("inputs" in refuted(linked(calls(600), kineto))) == compared


def test_sequence_numbers_that_differ_are_of_two_runs() -> None:
    expected = "two runs: 1 of 4 linked calls have different sequence numbers, such as aten::linear: "
    found = refuted(linked(calls(4), changed(calls(4), 1, seq=9)))
    assert found == {"numbers": f"{expected}8 in the ET, 9 in the Kineto trace"}
    assert refuted(linked(calls(4), changed(calls(4), 1, seq=-1))) == {}, "recorded on one side only"
    assert list(refuted(linked(changed(calls(4), 1, seq=0), calls(4)))) == ["numbers"]


@pytest.mark.parametrize(
    ("ours", "theirs", "says"),
    [
        ([1] * 16 + [2] * 16, [5] * 16 + [4] * 16, ""),
        ([1, 2] * 16, [5] * 32, "two ET threads are on one Kineto thread"),
        ([1] * 16 + [2] * 15, [5] * 31, ""),  # too few to tell a thread
        ([1] * 16, [5, 6] * 8, "one ET thread are on several Kineto threads"),
        ([1] * 16, [5] * 9 + [6] * 7, ""),
    ],
)
def test_threads_that_are_split_or_joined_are_of_two_runs(ours: list[int], theirs: list[int], says: str) -> None:
    et, kineto = ([Call(id=1 + at, tid=tid) for at, tid in enumerate(side)] for side in (ours, theirs))
    assert refuted(linked(et, kineto)) == ({"threads": f"two runs: linked calls of {says}"} if says else {})


@pytest.mark.parametrize(("name", "lacking"), [("aten::relu", True), ("gloo:all_reduce", False)])
def test_without_ids_a_call_between_linked_ones_must_be_in_both(name: str, lacking: bool) -> None:
    kineto = [Call(f"aten::{name}", seq=7 + at) for at, name in enumerate("abcdefgh")]
    found = refuted(linked([*kineto[:4], Call(name), *kineto[4:]], kineto))
    assert list(found) == (["calls"] if lacking else [])
    assert refuted(linked([*kineto, Call(name)], kineto)) == {}, "after the last linked one"


def test_processes_of_two_containers_can_share_a_small_id() -> None:
    report = linked(calls(4), calls(4), pid=2)
    assert report.ops["linked"] == 4 and report.ops["certain"] == 0 and report.identity is not None
    said = "both files are from process 2, but processes of two containers can share this id"
    assert said in report.identity.sentences[0] and "`etplus record` writes an id" in report.identity.sentences[0]
    assert linked(calls(4), calls(4), pid=5000).ops["certain"] == 4


def test_runs_of_a_sweep_with_other_shapes_are_told_apart(tmp_path: Path) -> None:
    files = [shared_case(f"sweep-other-shapes/hh_{part}.json.gz") for part in ("a.et", "b.kineto")]
    report = link(*files).report
    assert report.ops["linked"] == 330
    assert refuted(report)["inputs"].startswith("two runs: 258 of 330 compared calls have different inputs, such as ")
    succeeds("link", *files, "-o", tmp_path / "x.json")
    assert call("link", *files, "-o", tmp_path / "x.json", "--min-certain", "0.01").returncode == 3


def test_the_case_of_exchanged_ranks_in_a_folder(tmp_path: Path) -> None:
    folder = shared_case("batch-exchanged-rank0/rank0.et.json.gz").parent
    ranks = link_many(folder, tmp_path / "out", jobs=1).report.ranks
    assert [(rank.status, rank.linked, rank.certain) for rank in ranks] == [("linked", 330, 0)] * 2
    failed = link_many(folder, tmp_path / "out", jobs=1, min_certain=0.5).report.failed
    assert len(failed) == 2 and failed[0].reason.startswith("only 0 of 330 ET ops have a certain link: ")
