"""Thousands of broken pairs through the whole linker: one clear error or a sound result, never a false certainty."""

import contextlib
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from etplus.linker import link
from etplus.schemas.text.files import gunzip
from etplus.schemas.text.recover import recover
from etplus.schemas.text.sniff import as_utf8
from etplus.trace.errors import EtplusError
from etplus.trace.trace import Trace
from mutations import Kind, Mutation, identity, mutate
from support import FIXTURE_PAIRS, FIXTURES, TooSlowError, fixture_pair, plain, read_json, time_limit

LIMIT_S = 30
OPTIONS: tuple[dict[str, Any], ...] = (
    *({},) * 6, {"strict": True}, {"match": "ids"}, {"match": "sequence"}, {"match": "shift"}, {"exact_match": True},
    {"renumber": True}, {"iteration": "first"}, {"annotation": "ProfilerStep"}, {"annotation": "no such"},
)  # fmt: skip


@cache
def base(name: str, ids: bool) -> tuple[bytes, bytes, dict[int, int | None]]:
    """A sound pair, with or without the ids that both sides have, and its truth: `Ev Idx` of every node, or None."""
    et, kineto = map(plain, fixture_pair(name))
    if not ids:
        et, kineto = _without_rf_ids(et, "et"), _without_rf_ids(kineto, "kineto")
    beside = FIXTURES / f"{name}.links.json"
    links = read_json(beside if beside.exists() else FIXTURES / f"{name}.gpu.json")["links"]
    nodes = [node["id"] for node in orjson.loads(et)["nodes"]]
    return et, kineto, {node: links.get(str(node), (None, None))[1] for node in nodes}


def _without_rf_ids(data: bytes, kind: Kind) -> bytes:
    document = orjson.loads(data)
    for node in document.get("nodes", []):
        for attr in node["attrs"]:
            attr["value"] = 0 if attr["name"] == "rf_id" else attr["value"]
    for event in document.get("traceEvents", []):
        event.get("args", {}).pop("Record function id", None)
    return json.dumps(document).encode()


def events_of(data: bytes) -> list[Any]:
    """The events of a broken Kineto trace, as the linker numbers them."""
    if data.startswith(b"\x1f\x8b"):
        data = gunzip(data, "kineto.json.gz", kept=1 << 40)[0][:]
    data = as_utf8(data)
    with contextlib.suppress(orjson.JSONDecodeError, KeyError, TypeError):
        return list(orjson.loads(data)["traceEvents"])
    return list(orjson.loads(recover(data, "traceEvents").data)["traceEvents"])


def outcome(et: bytes, kineto: bytes, options: dict[str, Any], folder: Path) -> Any:
    """The ET+ document that comes of two files, None if they are refused; an exception that is no EtplusError fails."""
    target = folder / "out.json"
    try:
        with time_limit(LIMIT_S):
            result: Trace = link(et, kineto, **options)
            result.write(target)
            json.dumps(result.report.to_dict(), allow_nan=False)
            assert result.report.to_text()
    except EtplusError as error:
        assert not list(folder.iterdir()), "a failed run left a file"
        assert str(error) and "\n" not in str(error)
        return None
    assert list(folder.iterdir()) == [target]

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} in the output")

    document = json.loads(target.read_bytes(), parse_constant=refuse)
    target.unlink()
    return document


def false_certainties(
    document: Any, truth: dict[int, int | None], et: Mutation, kineto: Mutation
) -> list[tuple[int, int]]:
    """Certain links between records that no mutation touched and that do not belong together."""
    if et.touched is None or kineto.touched is None:
        return []
    events = events_of(kineto.data)
    false = []
    for node in document["nodes"]:
        if node.get("link") != "certain" or node.get("kineto_event") is None:
            continue
        own, event = node.get("et_id", node["id"]), identity(events[node["kineto_event"]], "kineto")
        if own in et.touched or own not in truth or event is None or event in kineto.touched:
            continue
        if truth[own] != event:
            false.append((own, event))
    return false


def broken_pair(rng: random.Random, et: bytes, kineto: bytes) -> tuple[Mutation, Mutation]:
    side = rng.choice(["et", "et", "kineto", "kineto", "both"])
    sound = frozenset[int]()
    return (
        mutate(et, "et", rng) if side != "kineto" else Mutation("sound", et, sound),
        mutate(kineto, "kineto", rng) if side != "et" else Mutation("sound", kineto, sound),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("ids", [True, False], ids=["ids", "no ids"])
@pytest.mark.parametrize("name", FIXTURE_PAIRS)
def test_broken_pairs_give_no_false_certainty(name: str, ids: bool, seed: int, fuzz_cases: int, tmp_path: Path) -> None:
    et, kineto, truth = base(name, ids)
    for case in range(max(fuzz_cases // 72, 1)):
        rng = random.Random(f"{name} {ids} {seed} {case}")
        broken_et, broken_kineto = broken_pair(rng, et, kineto)
        options = rng.choice(OPTIONS)
        about = f"case {case}: ET {broken_et.name}, Kineto {broken_kineto.name}, {options}"
        try:
            document = outcome(broken_et.data, broken_kineto.data, options, tmp_path)
        except (Exception, TooSlowError) as error:
            raise AssertionError(about) from error
        # without ids a call that seems to be made at another time can be taken for its neighbor of the same name
        by_ids = ids and options.get("match", "ids") == "ids"
        if document is not None and (by_ids or not (broken_et.order or broken_kineto.order)):
            assert not false_certainties(document, truth, broken_et, broken_kineto), about


@pytest.mark.parametrize("name", FIXTURE_PAIRS)
def test_swapped_and_doubled_files_are_refused(name: str, tmp_path: Path) -> None:
    et, kineto, _ = base(name, True)
    for pair in ((kineto, et), (et, et), (kineto, kineto)):
        assert outcome(*pair, {}, tmp_path) is None


def test_the_check_finds_a_false_certainty() -> None:
    et, kineto, truth = base("pairs/one_of_n", True)
    document = link(et, kineto).to_dict()
    sound, sound_kineto = Mutation("sound", et, frozenset()), Mutation("sound", kineto, frozenset())
    assert not false_certainties(document, truth, sound, sound_kineto)
    first, second = [node for node in document["nodes"] if node.get("link") == "certain"][:2]
    first["kineto_event"], second["kineto_event"] = second["kineto_event"], first["kineto_event"]
    assert [node for node, _ in false_certainties(document, truth, sound, sound_kineto)] == [first["id"], second["id"]]
    touched = Mutation("touched", et, frozenset({first["id"], second["id"]}))
    assert not false_certainties(document, truth, touched, sound_kineto)
