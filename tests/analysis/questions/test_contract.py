"""Every answer has the contract's form: schema, tokens, pages, errors, hostile names."""

from __future__ import annotations

from functools import cache
from typing import Any

import etplus
import jsonschema_rs
import orjson
import pytest
from etplus.analysis.questions import QUESTIONS, Answer, AskedTraces, AskError, ask, count_tokens
from etplus.analysis.questions.answer import UNITS
from etplus.analysis.questions.hottest import BY
from etplus.jobs.job import load
from support import ROOT, linked, shared_trace

PAIR = "pairs/gpu_shaped_from_cpu"
CERTAINTIES = {"recorded", "inferred", "predicted", "measured", "likely", "possible"}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("overview", {}), ("findings", {}), *(("hot", {"by": by}) for by in BY), ("hot", {"steps": "1"}),
    ("why", {"what": "idle"}), ("why", {"what": "step:1"}), ("path", {}), ("path", {"by": "operator"}),
    ("path", {"by": "line"}), ("path", {"by": "phase"}), ("path", {"by": "event"}),
    ("whatif", {"changes": ["kernel*0.5"]}), ("whatif", {"changes": ["kernel*0.5", "cpu*0.5"]}),
    ("table", {"name": "kernels"}), ("table", {"name": "gaps"}),
]  # fmt: skip


@cache
def validator() -> Any:
    schema = orjson.loads((ROOT / "schemas" / "answers.schema.json").read_bytes())
    return jsonschema_rs.Draft202012Validator(schema)


def assert_in_contract(form: dict[str, Any], most: int = 2000) -> None:
    problems = [f"{list(found.instance_path)}: {found.message[:300]}" for found in validator().iter_errors(form)]
    assert not problems, problems[:5]
    assert count_tokens(orjson.dumps(form).decode()) <= most
    if "error" in form:
        return
    assert all(len(row) == len(form["columns"]) for row in form["rows"])
    names = [column["name"] for column in form["columns"]]
    assert len(set(names)) == len(names) and names[:1] in (["id"], [])
    if any(column.get("certainty") == "row" for column in form["columns"]):
        at = names.index("certainty")
        assert {row[at] for row in form["rows"]} <= {
            "recorded",
            "inferred",
            "predicted",
            "measured",
            "likely",
            "possible",
        }


@cache
def asked() -> AskedTraces:
    return AskedTraces.of([linked(PAIR)])


@pytest.mark.parametrize(("question", "options"), ASKED)
def test_an_answer_is_in_the_contract_and_short(question: str, options: dict[str, Any]) -> None:
    answer = ask(asked(), question, **options)
    assert_in_contract(orjson.loads(answer.to_json()))
    assert answer.to_dict() == orjson.loads(answer.to_json())
    assert answer.rows or answer.notes


def test_the_schema_lists_what_the_code_does() -> None:
    schema = orjson.loads((ROOT / "schemas" / "answers.schema.json").read_bytes())["$defs"]
    assert schema["question"]["enum"] == list(QUESTIONS)
    assert schema["unit"]["enum"] == list(UNITS)


def pages(asked: AskedTraces, question: str, **options: Any) -> list[Answer]:
    found = [ask(asked, question, **options)]
    while (cursor := found[-1].next_cursor) is not None:
        found.append(ask(asked, question, **options, cursor=cursor))
        assert found[-1].rows, "every page has rows"
        assert_in_contract(found[-1].to_dict(), options.get("max_tokens", 2000))
    return found


def test_pages_together_are_the_whole_table() -> None:
    one = ask(asked(), "hot", by="operator", max_tokens=20_000)
    assert one.next_cursor is None and len(one.rows) == one.row_count
    several = pages(asked(), "hot", by="operator", max_tokens=600)
    assert len(several) > 3
    assert [row for page in several for row in page.rows] == list(one.rows)
    assert [row for page in pages(asked(), "hot", by="operator", limit=7) for row in page.rows] == list(one.rows)


def test_a_cursor_of_another_question_is_refused() -> None:
    cursor = ask(asked(), "hot", limit=1).next_cursor
    for other in ({"by": "operator", "limit": 1}, {"limit": 2}):
        with pytest.raises(AskError, match="of another question"):
            ask(asked(), "hot", cursor=cursor, **other)
    with pytest.raises(AskError, match="cursor"):
        ask(asked(), "hot", cursor="x")


@pytest.mark.parametrize(
    ("question", "options", "meant"),
    [
        ("hott", {}, "hot"), ("hot", {"by": "kernels"}, "kernel"), ("hot", {"bye": "kernel"}, "by"),
        ("hot", {"order": "device"}, "device_ns"), ("table", {"name": "kernel"}, "kernels"),
        ("table", {"name": "kernels", "columns": ["total"]}, "total_ns"),
        ("table", {"name": "kernels", "where": ["tota_ns>1"]}, "total_ns"), ("why", {"what": "idel"}, "idle"),
    ],
)  # fmt: skip
def test_an_error_says_what_was_meant(question: str, options: dict[str, Any], meant: str) -> None:
    with pytest.raises(AskError) as found:
        ask(asked(), question, **options)
    assert meant in found.value.did_you_mean, found.value
    assert_in_contract(found.value.to_dict(question))


@pytest.mark.parametrize(
    ("question", "options"),
    [
        ("why", {}), ("why", {"what": "step:99"}), ("why", {"what": "event:3"}), ("why", {"what": "kernel:999999"}),
        ("event", {"id": "x"}), ("event", {"id": "event:999999"}), ("event", {"id": "kernel:1"}), ("hot", {"trace": 7}),
        ("hot", {"steps": "99"}), ("hot", {"limit": 0}), ("hot", {"max_tokens": 10}), ("hot", {"limit": "many"}),
        ("whatif", {"changes": []}), ("whatif", {"changes": ["kernel"]}), ("whatif", {"changes": ["op:aten::mmm*0.5"]}),
        ("diff", {}), ("table", {"name": "kernels", "where": ["total_ns>much"]}),
        ("findings", {"id": "nothing"}),
    ],
)  # fmt: skip
def test_an_error_says_what_would_have_worked(question: str, options: dict[str, Any]) -> None:
    with pytest.raises(AskError) as found:
        ask(asked(), question, **options)
    assert found.value.works or found.value.did_you_mean, found.value
    assert_in_contract(found.value.to_dict(question))


def test_what_an_error_says_works_does() -> None:
    """Options that are said to work are taken at their word."""
    trace = linked(PAIR)
    for question, options in (("hot", {"by": "x"}), ("table", {"name": "x"}), ("why", {"what": "step:99"})):
        with pytest.raises(AskError) as found:
            trace.ask(question, **options)
        for words in found.value.works:
            name, _, value = words.partition("=")
            assert trace.ask(question, **{name: value})


def test_numbers_may_come_as_text() -> None:
    assert ask(asked(), "hot", limit="2", trace="0").rows == ask(asked(), "hot", limit=2, trace=0).rows
    assert ask(asked(), "whatif", changes="kernel*0.5").rows == ask(asked(), "whatif", changes=["kernel*0.5"]).rows


def test_the_library_gives_the_same_bytes() -> None:
    trace = linked(PAIR)
    assert trace.ask("hot", by="line").to_json() == ask(asked(), "hot", by="line").to_json()
    assert etplus.analysis.questions.count_tokens("a") == 1


def test_rows_without_a_value_come_last_and_contains_chooses() -> None:
    rows = ask(asked(), "table", name="operators", order="op desc", max_tokens=20_000).table()
    names = [row["op"] for row in rows]
    assert names == sorted(names, reverse=True)
    part = ask(asked(), "hot", by="operator", contains="ATEN::M", order="count asc").table()
    assert part and all("aten::m" in str(row["operator"]) for row in part)
    assert [row["count"] for row in part] == sorted(row["count"] for row in part)
    shares = [row["bound_share"] for row in ask(asked(), "hot", order="bound_share asc").table()]
    known = [share for share in shares if share is not None]
    assert shares[: len(known)] == sorted(known)


def test_the_parts_of_a_finding_are_asked_for_by_its_id() -> None:
    trace = load(shared_trace("python-stacks/mi300_timesformer.json.gz"))
    found, first = trace.findings(), trace.ask("findings")
    assert_in_contract(first.to_dict())
    assert [row["gain_ns"] for row in first.table()] == [one.gain and one.gain.ns for one in found][: len(first.rows)]
    for row, finding in zip(first.table()[:3], found, strict=False):
        for name in (row["id"], finding.id):
            one = trace.ask("findings", id=name)
            assert_in_contract(one.to_dict())
            assert one.fact("cost_ns") == finding.cost_ns
            parts = [part["part"] for part in one.table()]
            assert parts.count("evidence") == len(finding.evidence) and parts.count("what-if") == len(finding.what_ifs)
        at = row["first_event"]
        assert at is None or trace.ask("event", id=at).facts


def test_ranks_of_a_job_are_asked_together_and_others_are_not() -> None:
    files = [shared_trace(f"parallel/block.ddp2/rank{rank}.kineto.json.gz") for rank in range(2)]
    job = load([*map(str, files)])
    both = AskedTraces.of([*job])
    assert both.job and job.ask("hot", by="operator").to_json() == ask(both, "hot", by="operator").to_json()
    one, other, together = (
        {row["operator"]: row["count"] for row in ask(both, "hot", by="operator", max_tokens=20_000, **more).table()}
        for more in ({"trace": 0}, {"trace": 1}, {})
    )
    assert together == {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
    with pytest.raises(AskError, match="is about one trace"):
        ask(both, "why", what="step:0")
    with pytest.raises(AskError, match="does not say which trace"):
        ask(both, "event", id="event:3")
    assert ask(both, "event", id="event:3@1").traces[0]["rank"] == 1
    apart = AskedTraces.of([linked(PAIR), linked("pairs/one_of_n")])
    assert not apart.job and ask(apart, "diff").facts


def test_conditions_on_numbers_and_names() -> None:
    def found(*where: str) -> list[int]:
        return [row["count"] for row in ask(asked(), "table", name="operators", where=where, max_tokens=20_000).table()]

    counts = found()
    for sign, fits in (("<", int.__lt__), ("<=", int.__le__), (">", int.__gt__), (">=", int.__ge__), ("=", int.__eq__)):
        assert found(f"count{sign}3") == [count for count in counts if fits(count, 3)], sign
    assert len(found("count!=3")) == len(counts) - counts.count(3)
    assert 0 < len(found("op~ATEN::M", "count>1")) < len(found("op~aten::m")) + 1


@pytest.mark.parametrize(
    "value",
    ["q" * 100_000, ["kernel*" + "q" * 100_000], 10**5000, f"step:{'q' * 100_000}"],
    ids=["text", "texts", "number", "step"],
)
def test_no_error_repeats_a_long_argument(value: Any) -> None:
    asked = AskedTraces({0: linked(PAIR)})
    for question in QUESTIONS.values():
        for option in (*question.all_options, None):
            name = "q" * 100_000 if option is None else option.name
            needed = {"name": "breakdown"} if question.name == "table" else {}
            try:
                ask(asked, question.name, **{**needed, name: value})
            except AskError as error:
                assert len(orjson.dumps(error.to_dict(question.name))) < 3000
