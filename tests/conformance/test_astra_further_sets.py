"""More sets that are broken, or only strange: whatever the real ASTRA-sim does not run to the end, `check` calls an
error."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from astra_sim import run_astra
from broken_sets import GROUPS, Ranks, clean, coll, comp, edited, node, receive, send, write, write_with_network
from etplus.converters.preflight import check
from etplus.schemas.chakra import et_def_pb2 as pb
from etplus.schemas.chakra.attributes import attribute
from etplus.trace.errors import TraceFormatError


class Case(NamedTuple):
    """A set, its groups, and what is done to its files; `prefix` is that of a network file's."""

    name: str
    ranks: Ranks
    groups: dict[int, list[int]] | None = GROUPS
    change: Callable[[Path], object] | None = None
    network: bool = False


def on_both(name: str, change: Callable[[list[pb.Node]], object], groups: dict[int, list[int]] = GROUPS) -> Case:
    ranks = clean()
    for nodes in ranks:
        change(nodes)
    return Case(name, ranks, groups)


def on_one(name: str, change: Callable[[list[pb.Node]], object]) -> Case:
    ranks = clean()
    change(ranks[0])
    return Case(name, ranks)


def appended(name: str, *of_ranks: Sequence[pb.Node], groups: dict[int, list[int]] = GROUPS) -> Case:
    return Case(name, [[*nodes, *more] for nodes, more in zip(clean(), of_ranks, strict=True)], groups)


def ranks_of(name: str, groups: dict[int, list[int]], *of_ranks: str) -> Case:
    """Ranks that run collectives of groups, one after the other: "1 0" is one of group 1, then one of all ranks."""
    ranks = [
        [comp(1), *(coll(at, at - 1, group=group) for at, group in enumerate(words.split(), 2))] for words in of_ranks
    ]
    return Case(name, ranks, groups)


def changed(name: str, rank: int, change: Callable[[bytes], bytes]) -> Case:
    def write_changed(prefix: Path) -> None:
        file = Path(f"{prefix}.{rank}.et")
        file.write_bytes(change(file.read_bytes()))

    return Case(name, clean(), GROUPS, write_changed)


def grouped(text: str) -> Case:
    return Case(f"groups {text}", clean(), None, lambda prefix: Path(f"{prefix}.comm_groups.json").write_text(text))


def dimensions(*chosen: bool) -> pb.AttributeProto:
    return pb.AttributeProto(name="involved_dim", bool_list=pb.BoolList(values=chosen))


def lasting(node: pb.Node, micros: int) -> pb.Node:
    node.duration_micros = micros
    return node


def cases() -> Iterator[Case]:
    for size in (0, 1, 2**31, 2**53, 2**62, 2**63 - 1):
        for op in (pb.ALL_REDUCE, pb.ALL_TO_ALL, pb.REDUCE_SCATTER):
            yield on_both(f"{op} of {size}", lambda nodes, o=op, s=size: nodes.append(coll(7, 6, op=o, size=s)))  # type: ignore[misc]
    for micros in (2**53, 2**54 + 2**53, 2**62, 2**63):
        yield on_both(f"lasts {micros}", lambda nodes, m=micros: lasting(nodes[0], m))  # type: ignore[misc]
    for number in (2**32 + 1, 2**63, 2**64 - 1):
        yield on_both(f"id {number}", lambda nodes, n=number: nodes.append(comp(n, 6)))  # type: ignore[misc]
    for tag in (-1, 2**31 - 1):
        yield appended(f"tag {tag}", [send(7, 1, 6, tag=tag)], [receive(7, 0, 6, tag=tag)])
    yield appended("message of 2^62", [send(7, 1, 6, tag=9, size=2**62)], [receive(7, 0, 6, tag=9, size=2**62)])
    for group in ("1 ", " 1", "+1", "1.0", "１", "0x1", "-1", "1e0"):
        yield on_both(f"group {group!r}", lambda nodes, g=group: nodes.append(coll(7, 6, group=g)))  # type: ignore[misc]
    for text in (
        '{"1":["0","1"]}', '{"1":[0,1.5]}', '{"1":[[0,1]]}', '{"1":{"0":1}}', "hello", "[[0,1]]", '{"1":[0,1],}',
        '{"1":[0,1],"1":[0]}', '{"1":[0],"1":[0,1]}', '{"01":[0,1]}', '{"1":[0,1],"2":[]}', "{}", "", "null",
        '{"1":[1,0]}', '{"1":[0,1],"2":[0,99999999999]}',
    ):  # fmt: skip
        yield grouped(text)
    for name, value in (("comm_size", 2048), ("pg_name", "7"), ("comm_type", 9)):
        more = attribute(name, value)
        yield on_both(f"{name} again", lambda nodes, a=more: nodes[1].attr.append(a))  # type: ignore[misc]
        yield on_both(f"{name} before", lambda nodes, a=more: nodes[1].attr.insert(0, a))  # type: ignore[misc]
        yield on_one(f"{name} before, on one rank", lambda nodes, a=more: nodes[1].attr.insert(0, a))  # type: ignore[misc]
    odd: list[dict[str, Any]] = [{"int32_val": 8}, {"uint64_val": 8}, {"double_val": 8}, {"string_val": "8"}]
    for value in odd:
        yield on_both(f"size as {value}", lambda nodes, v=value: edited(nodes[1], "comm_size", **v))  # type: ignore[misc]
    yield on_both("no is_cpu_op", lambda nodes: [edited(one, "is_cpu_op") for one in nodes])
    yield on_both("attribute without a name", lambda nodes: nodes[1].attr.append(pb.AttributeProto(int64_val=1)))
    for chosen in ((True,), (False, True), (True, False), (True,) * 3):
        of_all = on_both(f"dimensions {chosen}", lambda nodes, c=chosen: nodes[4].attr.append(dimensions(*c)))  # type: ignore[misc]
        yield of_all._replace(network=True)
        yield on_both(f"group's dimensions {chosen}", lambda nodes, c=chosen: nodes[1].attr.append(dimensions(*c)))  # type: ignore[misc]
    for kind in (pb.MEM_LOAD_NODE, pb.MEM_STORE_NODE):
        memory = node(7, kind, [6], is_cpu_op=False, tensor_size=64)
        yield on_both(f"memory {kind}", lambda nodes, m=memory: nodes.append(m))  # type: ignore[misc]
        yield on_both(f"memory {kind} at last", lambda nodes, m=memory: nodes.extend([m, coll(8, 7)]))  # type: ignore[misc]
    yield on_both("broadcast at first", lambda nodes: nodes.__setitem__(slice(None), [coll(1, op=pb.BROADCAST)]))
    yield on_both("broadcast of no group", lambda nodes: nodes.append(coll(7, 6, op=pb.BROADCAST, group="9")))
    yield on_both("cycle of calls", lambda nodes: (nodes.append(comp(7, 6)), nodes[0].ctrl_deps.append(7)))
    yield on_both("last node first", lambda nodes: nodes.reverse())
    yield Case("collective after a message", [[send(1, 1), coll(2, 1)], [receive(1, 0), coll(2, 1)]])
    yield Case("each receives before it sends", [[receive(1, 1), send(2, 1, 1)], [receive(1, 0), send(2, 0, 1)]], None)
    yield appended("a group and all ranks", [coll(7, 6, group="")], [coll(7, 6, group="1")])
    of_two = {1: [0, 1], 2: [0, 1]}
    late = [comp(1), lasting(comp(4, 1), 100)]
    yield Case("later by itself", [[*late, coll(2, 4, group="1"), coll(3, 1, group="2")],
                                   [comp(1), coll(2, 1, group="1"), coll(3, 2, group="2")]], of_two)  # fmt: skip
    yield Case("either first", [[*late, coll(2, 4, group="1"), coll(3, 1, group="2")],
                                [*late, coll(2, 1, group="1"), coll(3, 4, group="2")]], of_two)  # fmt: skip
    yield Case("a late size", [[*late, coll(2, 4, size=64), coll(3, 1, size=128)],
                               [comp(1), coll(2, 1, size=64), coll(3, 1, size=128)]])  # fmt: skip
    ring = {1: [0, 1], 2: [1, 2], 3: [2, 3], 4: [3, 0]}
    yield ranks_of("groups in a ring", ring, "1 4", "2 1", "3 2", "4 3")
    yield ranks_of("groups in turn", ring, "1 4", "1 2", "3 2", "3 4")
    pair = {1: [0, 1], 9: [0, 1, 2]}
    yield ranks_of("a group, then all", pair, "1 0", "1 0", "0")
    yield ranks_of("all, then a group", pair, "0 1", "0 1", "0")
    yield ranks_of("a group between all", pair, "0 1 0", "0 1 0", "0 0")
    yield ranks_of("all as a group", pair, "9 1 9", "9 1 9", "9 9")
    yield ranks_of("all in both ways", pair, "9 1 0", "9 1 0", "9 0")
    yield ranks_of("as many of other groups", {1: [0, 1], 2: [2, 3]}, "1 0", "1 0", "2 0", "2 0")
    yield ranks_of("fewer of other groups", {1: [0, 1], 2: [2, 3]}, "1 1 0", "1 1 0", "2 0", "2 0")
    yield ranks_of("a member that does not take part", {1: [0, 1, 2]}, "1", "1", "")
    yield ranks_of("one too many", {1: [0, 2]}, "1", "1", "1")
    yield changed("text", 1, lambda data: b"{}")
    yield changed("no metadata", 1, lambda data: data[1 + data[0] :])
    yield changed("metadata twice", 1, lambda data: data[: 1 + data[0]] + data)
    yield changed("half", 1, lambda data: data[: len(data) // 2])
    yield changed("one bit", 1, lambda data: data[:60] + bytes([data[60] ^ 0x80]) + data[61:])
    yield changed("nodes twice", 1, lambda data: data + data[1 + data[0] :])
    yield Case("one rank's file for both", clean(), GROUPS,
               lambda prefix: Path(f"{prefix}.1.et").write_bytes(Path(f"{prefix}.0.et").read_bytes()))  # fmt: skip
    yield Case("01", clean(), GROUPS, lambda prefix: Path(f"{prefix}.1.et").rename(f"{prefix}.01.et"))


CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sets_that_check_passes_run_to_the_end(case: Case, tmp_path: Path) -> None:
    if case.network:
        write_with_network(tmp_path)
    prefix = write(tmp_path, case.ranks, case.groups)
    if case.change is not None:
        case.change(prefix)
    try:
        passes = check(prefix, profile="astra-sim").ok
    except TraceFormatError:
        passes = False
    if passes:
        assert run_astra(prefix, len(case.ranks), timeout_s=60).complete


FOUND = (
    "a group, then all", "a group between all", "fewer of other groups", "tag -1", "memory 2", "pg_name before",
    "dimensions (False, True)", "lasts 4611686018427387904",
)  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_this_way_does_not_run(name: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == name)
    assert not run_astra(write(tmp_path, case.ranks, case.groups), len(case.ranks), timeout_s=60).complete
