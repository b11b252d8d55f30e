"""Reading and writing .et files: round trips, damage, hostile lengths, atomicity."""

import itertools
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import orjson
import pytest
from etplus.schemas.chakra.attributes import attribute
from etplus.schemas.chakra.et_def_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node
from etplus.schemas.chakra.stream import MAX_MESSAGE_BYTES, Messages, node_heads, read_chakra, write_chakra, write_json
from etplus.trace.errors import ConvertError, TraceFormatError
from google.protobuf.message import DecodeError

METADATA = GlobalMetadata(version="1.1.1-chakra.0.0.4", attr=[attribute("tid", 4)])


def some_nodes(count: int) -> Iterator[Node]:
    for at in range(count):
        attributes = [attribute("is_cpu_op", at % 2 == 0), attribute("op_schema", "x" * (at * 20 % 300))]
        node = Node(id=at, name=f"op{at}", type=4, data_deps=range(max(0, at - 2), at), attr=attributes)
        node.inputs.CopyFrom(IOInfo(values="[1]", shapes="[[]]", types='["Int"]'))
        yield node


@pytest.mark.parametrize("name", ["x.0.et", "x.0.et.gz"])
def test_a_written_et_file_is_read_back_plain_or_gzipped(tmp_path: Path, name: str) -> None:
    assert write_chakra(tmp_path / name, METADATA, some_nodes(900)) == 900
    metadata, nodes = read_chakra(tmp_path / name)
    assert metadata == METADATA
    assert all(read == written for read, written in itertools.zip_longest(nodes, some_nodes(900)))
    assert (tmp_path / name).read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")


def test_written_bytes_match_the_chakra_format(tmp_path: Path) -> None:
    nodes = [Node(id=300, name="a", data_deps=[1, 2]), Node(), Node(name="b" * 130)]
    write_chakra(tmp_path / "x.0.et", GlobalMetadata(version="v"), nodes)
    metadata, first = b"\x03\x0a\x01v", b"\x0a\x08\xac\x02\x12\x01a\x2a\x02\x01\x02"
    assert (tmp_path / "x.0.et").read_bytes() == metadata + first + b"\0" + b"\x85\x01\x12\x82\x01" + b"b" * 130


def test_nodes_are_written_as_json_or_json_lines(tmp_path: Path) -> None:
    nodes = [Node(id=2**63, name="a", attr=[AttributeProto(name="x", double_val=0.5)])]
    for lines in (False, True):
        assert write_json(tmp_path / "x.json", GlobalMetadata(version="v"), nodes, lines=lines) == 1
        text = (tmp_path / "x.json").read_bytes()
        found = [*map(orjson.loads, text.splitlines())] if lines else orjson.loads(text)
        assert len(found) == 2 and found[0]["version"] == "v" and found[1]["id"] == 2**63


def test_empty_metadata_is_read_but_not_written(tmp_path: Path) -> None:
    path = tmp_path / "x.0.et"
    path.write_bytes(b"\0\x02\x08\x05")
    metadata, nodes = read_chakra(path)
    assert metadata.version == ""
    assert [node.id for node in nodes] == [5]
    with pytest.raises(ConvertError, match="needs a version"):
        write_chakra(tmp_path / "y.0.et", GlobalMetadata(), [])
    assert not (tmp_path / "y.0.et").exists()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    write_chakra(tmp_path / "x.0.et", METADATA, some_nodes(20))
    return tmp_path / "x.0.et"


def test_a_cut_names_the_offset_of_the_message(trace: Path) -> None:
    data, last = trace.read_bytes(), list(some_nodes(20))[-1].ByteSize()
    trace.write_bytes(data[:-3])
    with pytest.raises(TraceFormatError, match=f"cut off \\({last - 3} of {last} bytes\\)") as caught:
        list(read_chakra(trace)[1])
    assert caught.value.file == str(trace)
    assert caught.value.place == f"byte {len(data) - last - (1 if last < 128 else 2)}"


@pytest.mark.parametrize("prefix", [b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x81\x80\x80\x08"])
def test_a_hostile_length_asks_for_no_memory(trace: Path, prefix: bytes) -> None:
    data = trace.read_bytes()
    trace.write_bytes(data + prefix + bytes(100))
    tracemalloc.start()
    with pytest.raises(TraceFormatError, match=f"byte {len(data)}: a message of more than {MAX_MESSAGE_BYTES}"):
        list(read_chakra(trace)[1])
    trace.write_bytes(prefix + bytes(100))
    with pytest.raises(TraceFormatError, match="byte 0: a message of more than"):
        read_chakra(trace)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_a_message_beyond_the_limit_is_not_written(trace: Path) -> None:
    before = trace.read_bytes()
    with pytest.raises(ConvertError, match="can be written"):
        write_chakra(trace, METADATA, [Node(name="x" * (MAX_MESSAGE_BYTES + 1))])
    assert trace.read_bytes() == before
    assert [path.name for path in trace.parent.iterdir()] == ["x.0.et"]


def test_messages_longer_than_a_block_are_read(tmp_path: Path) -> None:
    nodes = [Node(id=1, name="x" * 3_000_000), Node(id=2), Node(id=3, name="y" * 1_048_570), Node(id=4)]
    for name in ("x.0.et", "x.0.et.gz"):
        write_chakra(tmp_path / name, METADATA, nodes)
        assert list(read_chakra(tmp_path / name)[1]) == nodes


def test_damaged_gzip_is_refused_with_the_byte_offset(tmp_path: Path) -> None:
    path = tmp_path / "x.0.et.gz"
    write_chakra(path, METADATA, some_nodes(900))
    data = path.read_bytes()
    for damaged in (data[:-20], data[:-6] + bytes(6), data[:40] + b"\xff\xff\xff\xff" + data[44:]):
        path.write_bytes(damaged)
        with pytest.raises(TraceFormatError, match=r"byte .*of the decompressed data"):
            list(read_chakra(path)[1])


def any_node(random: Random) -> Node:
    """With any of the fields, numbers of any size, and none of its dependencies twice."""

    def number() -> int:
        return random.choice([0, 1, 127, 128, 2**32, 2**63 - 1, 2**64 - 1, random.getrandbits(40)])

    lists = (list({number() for _ in range(random.choice([0, 0, 1, 3, 40]))}) for _ in range(2))
    node = Node(id=number(), type=random.randrange(1, 8), duration_micros=number())
    node.data_deps[:], node.ctrl_deps[:] = lists
    if random.random() < 0.5:
        node.name, node.start_time_micros = "é" * random.randrange(200), number()
        node.inputs.values = "[1]" * random.randrange(90)
        node.attr.extend([AttributeProto(name="x", double_val=0.5), AttributeProto(name="y", fixed64_val=2)])
    return node


def messages(bodies: list[bytes]) -> Messages:
    ends = list(itertools.accumulate(map(len, bodies)))
    return Messages("x.et", b"".join(bodies), 0, [0, *ends][:-1], ends, 0, "")


def test_heads_of_nodes_are_those_of_the_parsed_ones() -> None:
    random = Random(1)
    for count in (0, 1, 2, 100):
        nodes = [any_node(random) for _ in range(count)]
        heads = node_heads(messages([node.SerializeToString() for node in nodes]))
        assert heads is not None
        assert heads.ids.tolist() == [node.id for node in nodes]
        assert heads.kinds.tolist() == [node.type for node in nodes]
        assert heads.micros.tolist() == [node.duration_micros for node in nodes]
        assert heads.degrees.tolist() == [len(node.data_deps) + len(node.ctrl_deps) for node in nodes]
        ends = np.cumsum(heads.degrees)[:-1]
        for node, those in zip(nodes, np.split(heads.depends_on, ends), strict=bool(count)):
            assert sorted(those.tolist()) == sorted([*node.data_deps, *node.ctrl_deps])


def test_nodes_that_are_none_or_wait_twice_have_to_be_parsed() -> None:
    random = Random(2)
    for _ in range(100):
        good, body = any_node(random).SerializeToString(), any_node(random).SerializeToString()
        at = random.randrange(len(body))
        broken = random.choice([body[:at], body[:at] + bytes([random.randrange(256)]) + body[at + 1 :]])
        heads, node = node_heads(messages([good, broken])), Node()
        try:
            node.ParseFromString(broken)
        except DecodeError:
            continue
        if heads is not None:
            assert (heads.ids[1], heads.micros[1]) == (node.id, node.duration_micros)
            assert heads.degrees[1] == len(node.data_deps) + len(node.ctrl_deps)
    assert node_heads(messages([Node(id=1, data_deps=[3, 2, 3]).SerializeToString()])) is None
    assert node_heads(messages([Node(id=1, data_deps=[3], ctrl_deps=[3]).SerializeToString()])) is not None
    cut = [b"", b"\0\0", b"\x08", b"\x08\x80", b"\x2a\x05\x01", b"\x2a\x01\x80", b"\x0b\x0c", b"\x28\x01", b"\x5d\x01",
           b"\x59\x01"]  # fmt: skip
    assert [node_heads(messages([body])) for body in cut] == [None] * len(cut)


def test_a_broken_node_longer_than_a_block_is_refused_at_its_offset(trace: Path) -> None:
    trace.write_bytes(b"\x03\x0a\x01v" + b"\x80\x80\xc0\x02" + b"\xff" * (5 << 20))
    with pytest.raises(TraceFormatError, match=r"byte 4: 5242880 bytes that are not a Chakra node"):
        list(read_chakra(trace)[1])
