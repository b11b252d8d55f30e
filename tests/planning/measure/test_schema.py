"""Schemas, and which operators are refused."""

import pytest
from etplus.planning.measure.schema import NAMESPACES, OpSchema, SchemaArgument, parse_schema, refused

NOT_SCHEMAS = [
    "", "aten::mm", "aten::mm(Tensor self", "aten::mm(Tensor self, Tensor self) -> Tensor",
    "aten::mm(Tensor) -> Tensor", "aten::mm(self) -> Tensor", "mm(Tensor self) -> Tensor",
    "aten::mm(Tensor a-b) -> Tensor", "aten::mm(Tensor x, ) -> ", "aten::mm(str x=') -> Tensor",
    "aten::mm(Tensor " + "x" * (1 << 14) + ")",
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_SCHEMAS)
def test_malformed_schemas_are_parsed_as_none(text: str) -> None:
    assert parse_schema(text) is None


def test_a_schema_gives_its_arguments_with_types_and_keyword_flags() -> None:
    found = parse_schema(
        "ns::op.over(int[2] a=[1, 2], *, (int, int)[] b, str? c='(,\"', Tensor(a! -> *) d={1: 2}) -> ()"
    )
    assert found == OpSchema(
        "ns", "op", "over",
        (
            SchemaArgument("a", "int[2]", False), SchemaArgument("b", "(int, int)[]", True),
            SchemaArgument("c", "str?", True), SchemaArgument("d", "Tensor(a! -> *)", True),
        ),
    )  # fmt: skip
    assert found.op == "ns::op" and [one.written for one in found.arguments] == [False, False, False, True]
    assert parse_schema("aten::f() -> Tensor") == OpSchema("aten", "f", "", ())
    longest = "aten::f(Tensor x) -> " + "T" * ((1 << 14) - 21)
    assert len(longest) == 1 << 14 and parse_schema(longest) is not None and parse_schema(longest + "T") is None


def of(namespace: str, name: str = "f", kind: str = "Tensor") -> OpSchema:
    return OpSchema(namespace, name, "", (SchemaArgument("x", "Tensor", False), SchemaArgument("y", kind, False)))


def test_collectives_file_access_storages_and_unknown_namespaces_are_refused() -> None:
    assert [refused(of(namespace)) for namespace in NAMESPACES] == [""] * 4
    for namespace in ("c10d", "_c10d_functional", "c10d_functional", "symm_mem"):
        assert refused(of(namespace)) == "collective: it needs its process group"
    assert refused(of("x" * 50)) == f"operators of namespace {'x' * 40!r} are not called"
    assert refused(of("aten", "from_file")) == "not called: it opens a file"
    assert refused(of("aten", kind="Storage?")) == "argument 'y' is a Storage?, which is not recorded"

    assert refused(of("aten", kind="MyStorageType")) == ""
