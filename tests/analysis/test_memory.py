"""Memory over time: against the recorded totals, against a program of known allocations, ET-only against recorded."""

import random
from collections import Counter
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.analysis.counters import counters
from etplus.analysis.device_memory import device_memory
from etplus.analysis.storages import storages_of
from etplus.converters.open import load
from etplus.linker import link
from etplus.trace.errors import TraceFormatError
from made_traces import kineto_of, memory_event, op, traced
from support import Document, et_document
from traces import GPU_SHAPED, trace_of


def program(seed: int) -> tuple[bytes, list[tuple[str, int, int, int]], dict[int, int]]:
    """A trace of random allocations and frees whose addresses are used again.

    Returns:
        the Kineto file; of each block its operator, size, and the positions of the events that begin and end it (the
        number of events if none does); and the totals by event.
    """
    choose = random.Random(seed)
    events: list[Document] = []
    live: dict[int, int] = {}
    blocks: list[list[Any]] = []
    total, totals = 1000, {}
    for at in range(200):
        ts = 10.0 * at
        name = choose.choice(["aten::mm", "aten::add", "aten::relu"])
        events.append(op(name, ts, 8))
        if live and choose.random() < 0.5:
            address = choose.choice(sorted(live))
            block = blocks[live.pop(address)]
            block[3], size = at, -block[1]
        else:
            address = choose.choice([k for k in range(64, 64 * 150, 64) if k not in live])
            size = 512 * choose.randint(1, 9)
            live[address] = len(blocks)
            blocks.append([name, size, at, 200])
        total += size
        totals[at] = total
        events.append(memory_event(ts + 3, size, address, total))
    choose.shuffle(events)
    return kineto_of(events), [tuple(one) for one in blocks], totals


@pytest.mark.parametrize("seed", range(3))
def test_allocated_bytes_and_holders_at_the_peak_match_the_program(seed: int) -> None:
    data, blocks, totals = program(seed)
    (found,) = device_memory(load(data))
    assert found.device == "cuda:0" and found.base == 1000 and found.allocated.tolist() == list(totals.values())
    peak = max(totals, key=lambda at: (totals[at], -at))
    assert found.peak == peak
    expected = Counter[str]()
    for name, size, first, last in blocks:
        if first <= peak < last:
            expected[name] += size
    assert {row.operator: row.bytes for row in found.holders if row.blocks and row.category == "temporary"} == {}
    held = Counter[str]()
    for row in found.holders:
        held[row.operator] += row.bytes
    assert held == expected + Counter({"(allocated before the trace)": 1000})


def tensor(tensor_id: int, storage: int, numel: int) -> list[Any]:
    return [tensor_id, storage, 0, numel, 4, "cuda:0"]


def node(number: int, name: str, given: list[list[Any]], made: list[list[Any]], **more: Any) -> Document:
    def side(tensors: list[list[Any]]) -> Document:
        return {"values": tensors, "shapes": [[one[3]] for one in tensors], "types": ["Tensor(float)"] * len(tensors)}

    return {"id": number, "name": name, "rf_id": number, "inputs": side(given), "outputs": side(made), **more}


def test_storages_whose_ids_are_used_again_and_nested_makers() -> None:
    weight, first, second, result = tensor(90, 9, 256), tensor(50, 5, 100), tensor(51, 5, 300), tensor(70, 7, 128)
    nodes = [
        node(10, "aten::relu", [weight], [first]), node(11, "aten::sum", [first], []),
        node(12, "aten::linear", [weight], [second]), node(13, "aten::mm", [weight], [second], parent=12),
        node(14, "aten::addmm", [second], [result]), node(15, "aten::copy_", [result], [result], parent=14),
        node(16, "aten::mul", [result], []),
    ]  # fmt: skip
    times = {10: (0, 0), 11: (10, 5), 12: (20, 20), 13: (20, 15), 14: (50, 20), 15: (55, 5), 16: (80, 10)}
    names = {one["id"]: one["name"] for one in nodes}
    events = [op(names[k], *times[k], args={"Record function id": k, "Ev Idx": k}) for k in times]
    trace = link(orjson.dumps(et_document(nodes, "1.1.1-chakra.0.0.4")), kineto_of(events))
    held = storages_of(trace)
    names_of = [trace.names[trace.calls.name[call]] if call >= 0 else None for call in held.call.tolist()]
    found = sorted(zip(names_of, held.bytes.tolist(), held.begin.tolist(), held.end.tolist(), strict=True), key=str)
    expected = [
        ("aten::relu", 512, 0, 15_000), ("aten::mm", 1536, 20_000, 70_000), ("aten::addmm", 512, 50_000, 90_000),
        (None, 1024, 0, 40_000),
    ]  # fmt: skip
    assert found == sorted(expected, key=str)
    (memory,) = device_memory(trace)
    assert memory.peak_bytes == 1536 + 1024 and memory.base == 1024


def test_a_storage_that_is_resized_has_its_last_size() -> None:
    nodes = [
        node(10, "aten::empty", [], [tensor(50, 5, 100)]),
        node(11, "aten::resize_", [tensor(50, 5, 100)], [tensor(50, 5, 1000)]),
    ]  # fmt: skip
    names = {one["id"]: one["name"] for one in nodes}
    events = [op(names[k], 10 * k, 5, args={"Record function id": k, "Ev Idx": k}) for k in names]
    trace = link(orjson.dumps(et_document(nodes, "1.1.1-chakra.0.0.4")), kineto_of(events))
    assert storages_of(trace).bytes.tolist() == [4096]


@pytest.mark.parametrize(("device", "number"), [(-1, 0), (3, 3), (2**62, 0)])
def test_memory_of_devices_without_a_valid_number_counts_at_0(device: int, number: int) -> None:
    events = [op("aten::mm", 0, 5), memory_event(1, 512, 64, 512)]
    events[1]["args"]["Device Id"] = device
    trace = traced(events)
    assert [one.number for one in device_memory(trace)] == [number]
    assert {one.device for one in counters(trace)} == {number}


@pytest.mark.parametrize(
    "bad", ["1", "[[1.0, 2]]", '[["x", 1, 1, 1, 1, 1, 1, null, 1]]', f"[[1, {2**60}, 1, 1, 1, 1, 1, null, 1]]"]
)
def test_a_broken_memory_list_in_etplus_is_refused(bad: str) -> None:
    text = b"".join(load(program(0)[0]).chunks())
    begin = text.index(b'"memory": ') + len(b'"memory": ')
    with pytest.raises(TraceFormatError, match='"memory"'):
        load(text[:begin] + bad.encode() + text[text.index(b"]]", begin) + 2 :])


def test_an_event_without_its_size_is_lost_with_a_warning() -> None:
    events = [op("aten::mm", 0, 5), memory_event(1, 5, 64, 5), {**memory_event(2, 5, 64, 5), "args": {"Addr": 1}}]
    trace = traced(events)
    assert len(trace.memory) == 1 and trace.damage


def test_any_use_equals_a_search_of_every_use() -> None:
    held = storages_of(trace_of(f"linked {GPU_SHAPED}"))
    wanted = np.random.default_rng(0).random(int(held.uses.max()) + 1) < 0.05
    found = [any(wanted[held.uses[held.first[at] : held.first[at + 1]]]) for at in range(len(held))]
    assert held.any_use(wanted).tolist() == found and len(set(found)) == 2
