"""Embeddings and output layers divided by words, against recordings of DTensor."""

from __future__ import annotations

import gzip
from collections import Counter
from functools import cache
from pathlib import Path

import etplus
import orjson
import pytest
from etplus.planning.reshard.explain import explain
from etplus.planning.reshard.job import Resharded, reshard
from etplus.planning.reshard.layout import Layout, VocabularyStyle
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from reshard_families_truth import Operator, recording, whole_run
from support import FIXTURES, assert_valid, call

_AROUND = {
    "aten::linear", "aten::matmul", "aten::layer_norm", "aten::scaled_dot_product_attention", "aten::embedding",
    "aten::embedding_backward", "aten::cross_entropy_loss", "aten::log_softmax", "aten::nll_loss_nd", "aten::nll_loss",
    "aten::__or__", "aten::index_put_",
}  # fmt: skip
"""Operators that only call others; DTensor is called in their place."""
_COPIES = {"aten::clone", "aten::div", "aten::add", "aten::add_", "aten::where", "aten::sum"}
"""Copies and sums of gradients in place or not, DTensor's bias of a row layer, and operators that call themselves."""


@cache
def _derived(family: str, style: VocabularyStyle) -> Resharded:
    job = reshard(recording(f"{family}.single1"), Layout(tp=2, vocabulary=style))
    assert isinstance(job, Resharded)
    return job


def _work(trace: Trace) -> list[Operator]:
    return [
        one for one in whole_run(trace).work
        if one[0] not in _AROUND | _COPIES and not (one[0] == "aten::_index_put_impl_" and not one[1][-1])
    ]  # fmt: skip


@pytest.mark.parametrize(("family", "style"), [("tiedgpt", "gather"), ("tiedgpt", "loss"), ("llama", "gather")])
def test_a_divided_vocabulary_is_as_recorded(family: str, style: VocabularyStyle) -> None:
    recorded, job = recording(f"{family}.{style}2"), _derived(family, style)
    derived = job.trace(0)
    assert Counter(_work(derived)) == Counter(_work(recorded))
    assert _work(derived) == _work(recorded)
    assert whole_run(derived).comms == whole_run(recorded).comms
    assert not [doubt for doubt in job.doubts if "communication" in doubt]
    assert job.proof.equal and job.matched() > 0
    words = {tuple(size) for size in map(job.derivation.sizes, job.derivation.model.parameters) if size[0] == 32}
    assert (32, 48) in words


def test_the_vocabulary_is_whole_unless_it_is_asked_for() -> None:
    job = _derived("tiedgpt", "whole")
    assert {size[0] for size in map(job.derivation.sizes, job.derivation.model.parameters)} >= {64, 72}
    assert not job.derivation.plan.to_dict(job.derivation.model)["tensor_parallel"][-1]["words"]
    assert "words" not in explain(job.derivation)


def test_what_is_divided_is_explained() -> None:
    text = explain(_derived("tiedgpt", "loss").derivation)
    assert "vocabulary: 64 words over 2 ranks" in text and "the loss is computed of parts of the logits" in text
    assert "tied: used by 2 units" in text
    assert "the logits are gathered" in explain(_derived("llama", "gather").derivation)


def test_what_does_not_divide_is_refused() -> None:
    plan = _derived("tiedgpt", "gather").plan
    plan["tensor_parallel"] = [entry for entry in plan["tensor_parallel"] if entry["words"]]
    with pytest.raises(UsageError, match="a vocabulary of 64 words does not divide over tp=3 ranks"):
        reshard(recording("tiedgpt.single1"), Layout(tp=3, vocabulary="gather"), plan=plan)
    with pytest.raises(UsageError, match="no vocabulary is in it"):
        reshard(recording("accum.single1"), Layout(tp=2, vocabulary="gather"))
    with pytest.raises(UsageError, match="without sequence parallelism"):
        Layout(vocabulary="loss")


def test_halves_of_rotary_heads_are_not_divided() -> None:
    """They are summed up to a head's width, which no rank has a part of."""
    plan = _derived("llama", "gather").derivation.plan
    assert sorted(division.size for division in plan.divisions) == [2, 4, 64, 64, 144]


def test_the_command_divides_the_vocabulary(tmp_path: Path) -> None:
    folder = FIXTURES / "families" / "tiedgpt.single1"
    files = ["--et-file", folder / "rank0.et.json.gz", "--kineto-file", folder / "rank0.kineto.json.gz"]
    wanted = ["--tp", "2", "--vocab-parallel", "loss"]
    done = call("reshard", *files, *wanted, "-o", tmp_path / "out", "--plan", tmp_path / "p")
    assert done.returncode in (0, 3), done.stderr
    derived = tmp_path / "out" / "rank_1.etplus.json.gz"
    assert_valid(orjson.loads(gzip.decompress(derived.read_bytes())))
    assert whole_run(etplus.load(derived)).comms == whole_run(recording("tiedgpt.loss2")).comms
    again = call("reshard", *files, *wanted, "-o", tmp_path / "more", "--use", tmp_path / "p")
    assert again.returncode == done.returncode
    assert (tmp_path / "more" / "rank_1.etplus.json.gz").read_bytes() == derived.read_bytes()
