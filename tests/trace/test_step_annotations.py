"""Annotations of serving engines: their forms, the sums over requests, and which event is in which step."""

import numpy as np
import pytest
from etplus.trace.errors import UsageError
from etplus.trace.find_steps import find_marks
from etplus.trace.step_annotations import (
    NO_REQUESTS,
    RequestSums,
    StepBatch,
    UntracedStep,
    batch_size_in,
    parse_capture,
    parse_step,
    untraced_step,
)
from etplus.trace.steps import chosen_steps
from hypothesis import given
from hypothesis import strategies as st
from served import Batch, serve
from support import examples

REQUEST = st.integers(1, 50).flatmap(lambda q: st.tuples(st.just(q), st.integers(q, 2000)))
BATCHES = st.builds(
    Batch, st.lists(REQUEST, max_size=5), st.lists(st.tuples(st.just(1), st.integers(1, 999)), max_size=5)
)
FORMS = ["vllm", "vllm old", "vllm older", "sglang"]


def test_step_annotations_of_real_servers_are_parsed_into_batches() -> None:
    whole, two = RequestSums(1, 888, None, 788544, None), RequestSums(2, 2, None, 2, None)
    for name, batch in (
        ("execute_context_1(888_788544)_generation_0(0)", StepBatch("prefill", whole, NO_REQUESTS, 1, 888, 888)),
        ("execute_context_3(1024)_generation_2(2)", StepBatch("mixed", RequestSums(3, 1024), two, 5, 1026, 1026)),
        ("step[EXTEND bs=15 toks=15360]",
         StepBatch("prefill", RequestSums(15, 15360), NO_REQUESTS, 15, 15360, 15, "EXTEND")),
        ("step[TARGET_VERIFY bs=4]", StepBatch("decode", NO_REQUESTS, RequestSums(4), 4, None, 4, "TARGET_VERIFY")),
    ):  # fmt: skip
        assert parse_step(name) == batch
    outer, inner = map(parse_step, ("execute_context_0(0)_generation_4(4)", "step[DECODE bs=4]"))
    assert outer and inner and outer.completed(inner).mode == inner.completed(outer).mode == "DECODE"
    assert parse_capture("capture_8192_PIECEWISE") == StepBatch("capture", size=8192, mode="PIECEWISE")
    assert parse_capture("graph_capture: batch=8 mode=FULL_DECODE_ONLY") == parse_step("capture_8_FULL_DECODE_ONLY")


def test_forms_that_are_not_known_are_steps_and_other_annotations_are_none() -> None:
    for name in (
        "execute_7_context_1(sq7)_generation", "execute_prefill_12_tokens", "execute_9_draft_3(sq1)", "step[Extend: 9]",
        "step[decode 7]", "execute_" + "9" * 400 + "_context_1(1)_generation_0(0)", "step[DECODE bs=" + "9" * 90 + "]",
    ):  # fmt: skip
        found = parse_step(name)
        assert found is not None and found.phase == "unknown" and found.tokens is None
    for name in ("forward", "execute_model", "ProfilerStep#3", "steps[3]", "step[3]", "aten::mm", "", "capture"):
        assert parse_step(name) is None


def test_fields_that_are_not_known_are_left_out() -> None:
    found = parse_step("execute_12_context_2(sq12sk20max9)_generation_1(latest)")
    assert found is not None and (found.phase, found.size, found.requests) == ("mixed", 12, 3)
    assert found.prefill == RequestSums(2, 12, 20) and found.decode == RequestSums(1) and found.tokens is None
    assert parse_step("step[NEW_MODE bs=3 toks=x]") == StepBatch("unknown", requests=3, size=3, mode="NEW_MODE")


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("step[DECODE bs=32]", 32), ("execute_16_context", 16), ("execute_context_1(100)_generation_2(2)", 102),
        ("execute_context_0(0)_generation_7(7)", 7), ("forward", None), ("abs=3", None), ("capture_32_DECODE", None),
        ("my step bs=8", 8),
    ],
)  # fmt: skip
def test_the_batch_size_is_read_from_the_annotation_name(name: str, size: int | None) -> None:
    assert batch_size_in(name) == size


@examples(25)
@given(
    st.lists(BATCHES, min_size=1, max_size=5), st.sampled_from(FORMS), st.integers(0, 999), st.sampled_from([0, 300]),
    st.integers(1, 2), st.booleans(),
)  # fmt: skip
def test_every_event_is_in_its_step(
    batches: list[Batch], form: str, seed: int, delay: int, threads: int, wrapped: bool
) -> None:
    made = serve(batches, form, seed, delay=delay, threads=threads, wrapped=wrapped)
    trace = made.trace()
    assert [step.phase for step in trace.steps] == [batch.phase for batch in batches]
    assert list(zip(trace.steps.start.tolist(), trace.steps.end.tolist(), strict=True)) == made.spans
    for table, steps in ((trace.calls, trace.step_of_call), (trace.gpu, trace.step_of_event)):
        events = trace.nodes.kineto_event[table.source].tolist()
        assert steps.tolist() == [made.step_of[event] for event in events]
    for step, batch in zip(trace.steps, batches, strict=True):
        assert step.batch is not None and step.batch.tokens == batch.tokens


def marks(*annotations: tuple[str, int, int]) -> list[tuple[int, str]]:
    names, start, end = ([one[k] for one in annotations] for k in range(3))
    columns = (np.array(column, np.int64) for column in (start, end, [0] * len(names)))
    found = find_marks(names, *columns, np.array(start, np.int64), 1000)
    return [(at, batch.phase) for at, batch in zip(found.mark.tolist(), found.batches, strict=bool(found.batches))]


def test_annotations_of_known_phases_are_preferred_as_steps() -> None:
    decode, unknown, capture = "step[DECODE bs=1]", "execute_new_3", "capture_8_FULL"
    assert marks((unknown, 0, 100), (decode, 10, 20), (decode, 30, 40)) == [(1, "decode"), (2, "decode")]
    assert marks((decode, 0, 10), (unknown, 10, 20), (unknown, 12, 15)) == [(0, "decode"), (1, "unknown")]
    assert marks((decode, 0, 10), (unknown, 2, 5)) == [(0, "decode")]
    assert marks(("ProfilerStep#1", 0, 50), (capture, 1, 20), (capture, 21, 40)) == [(1, "capture"), (2, "capture")]
    assert marks(("ProfilerStep#1", 0, 50), (decode, 1, 20), (capture, 21, 40)) == [(1, "decode")]
    assert marks(("ProfilerStep#1", 0, 50), (unknown, 1, 20)) == []  # the profiler's own step is one
    assert marks((unknown, 0, 50), ("forward", 1, 20)) == [(0, "unknown")]
    assert marks(("step[EXTEND bs=1 toks=9]", 0, 50), (decode, 1, 20)) == [(0, "prefill")]


def test_steps_can_be_chosen_by_phase_and_unknown_phases_are_refused() -> None:
    batches = [Batch(prefill=[(3, 3)]), Batch(decode=[(1, 6), (1, 2)]), Batch(decode=[(1, 9)])]
    steps = serve(batches).trace().steps
    assert [step.number for step in steps.of_phase("decode")] == [1, 2] and steps.of_phase("mixed") == ()
    with pytest.raises(UsageError, match="phase 'x': use one of"):
        steps.of_phase("x")
    assert chosen_steps("decode", 3, steps.phases, "a.json").tolist() == [1, 2]
    for phases, said in ((steps.phases, "a.json has none; its steps are prefill, decode"), ((), "no annotation of")):
        with pytest.raises(UsageError, match=said):
            chosen_steps("mixed", 3, phases, "a.json")
    columns = steps._columns()
    assert columns["phase"] == ["prefill", "decode", "decode"] and columns["tokens"] == [3, 2, 1]
    assert columns["prefill_pairs"] == [6, 0, 0] and columns["decode_pairs"] == [0, 8, 9]


def test_the_time_of_steps_that_were_not_traced() -> None:
    name = "etplus.untraced steps=5 step_ns=812345 host_ns=640000"
    assert untraced_step(["x", name, "y"]) == UntracedStep(5, 812345, 640000)
    assert untraced_step(["x", name + " "]) is None and untraced_step([]) is None
