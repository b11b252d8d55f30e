"""Small Chakra sets of two ranks made by hand: a clean one, and what spoils it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from chakra_sets import write_set
from etplus.converters.astra_config import write_astra_config
from etplus.converters.astra_links import astra_links
from etplus.schemas.chakra import et_def_pb2 as pb
from etplus.schemas.chakra.attributes import attribute
from etplus.timeline import Network

Ranks = list[list[pb.Node]]


GROUPS = {1: [0, 1]}


def node(number: int, kind: int, deps: Sequence[int] = (), **values: Any) -> pb.Node:
    attributes = [attribute(name, value) for name, value in values.items()]
    return pb.Node(id=number, name=f"n{number}", type=kind, data_deps=deps, attr=attributes)  # type: ignore[arg-type]


def comp(number: int, *deps: int) -> pb.Node:
    return node(number, pb.COMP_NODE, deps, is_cpu_op=False)


def coll(number: int, *deps: int, op: int = pb.ALL_REDUCE, size: int = 1024, group: str = "1") -> pb.Node:
    return node(number, pb.COMM_COLL_NODE, deps, is_cpu_op=False, comm_type=op, comm_size=size, pg_name=group)


def send(number: int, to: int, *deps: int, tag: int = 5, size: int = 64) -> pb.Node:
    return node(number, pb.COMM_SEND_NODE, deps, comm_dst=to, comm_tag=tag, comm_size=size)


def receive(number: int, source: int, *deps: int, tag: int = 5, size: int = 64) -> pb.Node:
    return node(number, pb.COMM_RECV_NODE, deps, comm_src=source, comm_tag=tag, comm_size=size)


def clean() -> Ranks:
    """Two ranks: collectives of two groups and a message each way."""
    return [
        [comp(1), coll(2, 1), send(3, 1, 2), receive(4, 1, 2), coll(5, 3, 4, op=pb.ALL_GATHER, group=""), comp(6, 5)],
        [comp(1), coll(2, 1), send(3, 0, 2), receive(4, 0, 2), coll(5, 3, 4, op=pb.ALL_GATHER, group="0"), comp(6, 5)],
    ]


def write(folder: Path, ranks: Ranks, groups: dict[int, list[int]] | None = None) -> Path:
    return write_set(folder, ranks, version="1", groups=groups)


def edited(node: pb.Node, name: str, **value: Any) -> None:
    """Give an attribute another value, or remove it if none is given."""
    kept = [one for one in node.attr if one.name != name]
    del node.attr[:]
    node.attr.extend([*kept, *([pb.AttributeProto(name=name, **value)] if value else [])])


Spoil = Callable[[Ranks], object]


def without(at: int, name: str) -> Spoil:
    return lambda ranks: edited(ranks[0][at], name)


def with_value(at: int, name: str, *, rank: int = 0, **value: Any) -> Spoil:
    return lambda ranks: edited(ranks[rank][at], name, **value)


def on_both(at: int, name: str, **value: Any) -> Spoil:
    return lambda ranks: [edited(nodes[at], name, **value) for nodes in ranks]  # type: ignore[func-returns-value]


def with_field(at: int, name: str, value: object, *, rank: int = 0) -> Spoil:
    return lambda ranks: setattr(ranks[rank][at], name, value)


def twice(at: int, name: str, value: object) -> Spoil:
    return lambda ranks: ranks[0][at].attr.append(attribute(name, value))


def with_deps(at: int, kind: str, *deps: int, rank: int = 0) -> Spoil:
    return lambda ranks: getattr(ranks[rank][at], kind).extend(deps)


def with_nodes(rank: int, *nodes: pb.Node) -> Spoil:
    return lambda ranks: ranks[rank].extend(nodes)


def of_type(op: int, size: int = 64) -> Spoil:
    return lambda ranks: [nodes.append(coll(7, 6, op=op, size=size)) for nodes in ranks]  # type: ignore[func-returns-value]


def in_dimensions(*chosen: bool) -> Spoil:
    return on_both(4, "involved_dim", bool_list=pb.BoolList(values=chosen))


def dangling_between(ranks: Ranks) -> None:
    ranks[1][5].id = 9
    ranks[1].append(comp(10, 8))


def swapped_order(ranks: Ranks) -> None:
    for nodes, ops in zip(ranks, ([0, 6], [6, 0]), strict=True):
        nodes.extend(coll(7 + at, 5 + at, op=op) for at, op in enumerate(ops))


def crossed_messages(ranks: Ranks) -> None:
    for rank, nodes in enumerate(ranks):
        nodes += [receive(7, 1 - rank, 6, tag=9), send(8, 1 - rank, 7, tag=9)]


def crossed_groups(ranks: Ranks) -> None:
    ranks[0] += [coll(7, 6), coll(8, 7, group="0")]
    ranks[1] += [coll(7, 6, group="0"), comp(8, 7), coll(9, 8)]


def uneven(ranks: Ranks) -> None:
    for size, nodes in zip((100, 102), ranks, strict=True):
        nodes.append(coll(7, 6, op=pb.ALL_TO_ALL, size=size))


def empty_messages(ranks: Ranks) -> None:
    ranks[0].append(send(7, 1, 6, tag=9, size=0))
    ranks[1].append(receive(7, 0, 6, tag=9, size=0))


def unknown_group(ranks: Ranks) -> None:
    for nodes in ranks:
        nodes.append(coll(7, 6, group="2"))


def first_of_all(ranks: Ranks) -> None:
    del ranks[0][1].data_deps[:]


def out_of_turn(ranks: Ranks) -> None:
    """The second of two collectives in a row may come first on one rank, if times are such."""
    for nodes, deps in zip(ranks, ((8,), (1,)), strict=True):
        nodes += [comp(7, 6), coll(8, 7), coll(9, *deps)]


cycle = with_deps(1, "ctrl_deps", 6)
duplicate_id_and_cycle = with_nodes(0, comp(7, 8), comp(8, 7), comp(6))
only_one_rank_of_a_group = with_nodes(1, coll(7, 5, group="2"))
other_tag = with_value(2, "comm_tag", int32_val=6)
other_message_size = with_value(3, "comm_size", int64_val=65)
peer_that_is_not = with_value(2, "comm_dst", int32_val=2)


HARD = [
    (with_field(5, "id", 1), "duplicate-id", "2 nodes have the id 1"),
    (with_deps(5, "data_deps", 77, rank=1), "dangling-dependency", "node 6 depends on 77"),
    (with_deps(5, "ctrl_deps", 77, rank=1), "dangling-dependency", "node 6 depends on 77"),
    (dangling_between, "dangling-dependency", "node 10 depends on 8"),
    (with_deps(0, "ctrl_deps", 1), "cycle", "1 -> 1; 6 of 6 nodes"),
    (cycle, "cycle", "5 of 6 nodes are never issued"),
    (lambda ranks: ranks[1].clear(), "no-nodes", "t.1.et has metadata only"),
    (without(1, "comm_type"), "missing-attribute", "COMM_COLL_NODE) has no comm_type"),
    (without(1, "comm_size"), "missing-attribute", "has no comm_size"),
    (without(2, "comm_dst"), "missing-attribute", "COMM_SEND_NODE) has no comm_dst"),
    (without(2, "comm_tag"), "missing-attribute", "has no comm_tag"),
    (without(3, "comm_src"), "missing-attribute", "COMM_RECV_NODE) has no comm_src"),
    (without(3, "comm_size"), "missing-attribute", "has no comm_size"),
    (with_value(1, "comm_type", string_val="ALL_REDUCE"), "attribute-unreadable", "not int64_val"),
    (with_value(1, "pg_name", int64_val=1), "attribute-unreadable", "pg_name of node 2 is int64_val, not string_val"),
    (with_value(1, "involved_dim", bool_val=True), "attribute-unreadable", "not bool_list"),
    (with_value(1, "is_cpu_op", bool_val=True), "attribute-value", "is_cpu_op is True"),
    (with_value(1, "comm_type", int64_val=10), "attribute-value", "comm_type is 10"),
    (with_value(1, "comm_size", int64_val=-1), "attribute-value", "comm_size is -1"),
    (with_value(1, "pg_name", string_val="default_pg"), "attribute-value", "pg_name is 'default_pg'"),
    (with_value(1, "pg_name", string_val="2147483648"), "attribute-value", "decimal integer"),
    (with_value(2, "comm_src", int32_val=1), "attribute-value", "comm_src is 1, but the node is on rank 0"),
    (with_value(2, "comm_dst", int32_val=-1), "attribute-value", "comm_dst is -1"),
    (with_value(3, "comm_dst", int32_val=1), "attribute-value", "comm_dst is 1, but the node is on rank 0"),
    (with_value(2, "comm_tag", int32_val=-1), "attribute-value", "comm_tag is -1, but tags count from 0"),
    (
        with_value(1, "comm_type", rank=1, int64_val=pb.ALL_TO_ALL),
        "collective",
        "collective 0: ALL_REDUCE of 1024 bytes on rank 0 (node 2), ALL_TO_ALL of 1024",
    ),
    (with_value(1, "comm_size", rank=1, int64_val=2048), "collective", "ALL_REDUCE of 2048 bytes on rank 1 (node 2)"),
    (
        with_nodes(0, coll(7, 5)),
        "collective",
        "group 1, collective 1: ALL_REDUCE of 1024 bytes on rank 0 (node 7) is missing on rank 1 (it has 1 of 2)",
    ),
    (swapped_order, "collective", "collective 1: ALL_REDUCE of 1024 bytes on rank 0 (node 7), ALL_TO_ALL"),
    (
        lambda ranks: ranks[0][2].CopyFrom(comp(3, 2)),
        "message",
        "rank 0 to 1, tag 5, 64 bytes: 0 sends, 1 receives (first: node 4 of rank 1)",
    ),
]  # fmt: skip


OTHER_READERS = [
    (with_deps(5, "data_deps", 5), "duplicate-dependency", "data_deps of node 6"),
    (with_deps(5, "ctrl_deps", 2, 5, 2), "duplicate-dependency", "ctrl_deps of node 6"),
    (with_value(1, "comm_size", uint64_val=1024), "attribute-type", "comm_size of node 2 is uint64_val, not int64_val"),
    (with_value(1, "comm_priority", int64_val=1), "attribute-type", "not int32_val"),
    (with_value(2, "comm_dst", int64_val=1), "attribute-type", "not int32_val"),
    (with_value(3, "comm_tag", uint32_val=5), "attribute-type", "not int32_val"),
    (with_value(0, "is_cpu_op", int32_val=0), "attribute-type", "is_cpu_op of node 1 is int32_val, not bool_val"),
    (with_value(0, "num_ops", uint64_val=3), "attribute-type", "num_ops of node 1"),
    (with_value(0, "tensor_size", doc_string="none"), "attribute-type", "is without a value, not uint64_val"),
    (with_value(1, "pg_name", string_val="01"), "group-name", "pg_name of node 2 is '01'"),
    (twice(1, "comm_size", 1024), "duplicate-attribute", "comm_size of node 2"),
]
"""What ASTRA-sim runs, and another reader does not."""


SIMULATOR_ONLY = [
    (on_both(1, "comm_size", int64_val=2**60), "overflow", 2, "node 2 communicates 1,152,921,504,606,846,976 bytes"),
    (with_field(0, "duration_micros", 2**50), "overflow", 1, "its nodes take 1,125,899,906,842,624 µs in total"),
    (with_nodes(0, node(7, pb.METADATA_NODE)), "unsupported-node", 1, "node 7 is of type METADATA_NODE"),
    (with_nodes(0, node(7, pb.INVALID_NODE, [6]), comp(8, 7)), "unsupported-node", 1, "node 7 is of type INVALID_NODE"),
    (with_nodes(0, node(7, 8)), "unsupported-node", 1, "node 7 is of type 8"),
    (of_type(pb.REDUCE), "unsupported-collective", 2, "node 7 is a REDUCE"),
    (of_type(pb.GATHER), "unsupported-collective", 2, "node 7 is a GATHER"),
    (of_type(pb.SCATTER), "unsupported-collective", 2, "node 7 is a SCATTER"),
    (of_type(pb.REDUCE_SCATTER_BLOCK), "unsupported-collective", 2, "node 7 is a REDUCE_SCATTER_BLOCK"),
    (of_type(pb.BARRIER), "unsupported-collective", 2, "node 7 is a BARRIER"),
    (of_type(pb.ALL_GATHER, 0), "empty-all-gather", 2, "node 7 gathers 0 bytes"),
    (uneven, "uneven-collective", 1, "ALL_TO_ALL of 100 bytes on rank 0 (node 7), ALL_TO_ALL of 102 bytes"),
    (with_nodes(0, send(7, 0, 6), receive(8, 0, 6)), "self-message", 2, "node 7 is a message from rank 0 to itself"),
    (empty_messages, "empty-message", 2, "node 7 (COMM_SEND_NODE) has 0 bytes"),
    (in_dimensions(False, False), "no-dimension", 2, "node 5: all values of involved_dim are false"),
    (in_dimensions(), "no-dimension", 2, "node 5: all values of involved_dim are false"),
    (unknown_group, "group", 2, "group 2 of node 7 is not in the group file"),
]

NETWORK_FLAWS = [
    ("network.yml", "npus_count: [ 2 ]", "npus_count: [ 3 ]", "npus_count is 3, but the set has 2 ranks"),
    ("network.yml", "npus_count: [ 2 ]", "npus_count: [ 1 ]", "npus_count is 1, but the set has 2 ranks"),
    ("network.yml", "npus_count: [ 2 ]", "npus_count: [ 2, 2 ]", "must be lists of equal length"),
    ("network.yml", "latency: [ 5000 ]", "", "must be lists of equal length"),
    ("system.json", '"ring"', '"star"', "all-reduce-implementation is ['star']"),
    ("system.json", '"ring"', '"ring", "ring"', "all-reduce-implementation has 2 algorithms for 1 dimensions"),
    ("system.json", "{", "", "not a JSON object"),
    ("system.json", "{", "[" * 100_000, "not a JSON object"),
]
"""Of a clean set's network files the file, a text, another one in its place, and what is found."""


def write_with_network(folder: Path) -> Path:
    """A clean set for ASTRA-sim, with its network files; its prefix."""
    prefix, network = write(folder, clean(), GROUPS), Network(25.0, 5000.0)
    write_astra_config(str(prefix), network, astra_links(network, 2), groups=True)
    return prefix


def spoil_network(prefix: Path, suffix: str, old: str, new: str) -> None:
    """Put one text in another one's place."""
    file = prefix.with_name(f"{prefix.name}.{suffix}")
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
