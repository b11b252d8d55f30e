"""What is to change, from texts."""

import pytest
from etplus.planning.reshape.shape_change import ShapeChange, SizeChange, batch_change, parse_changes
from etplus.trace.errors import UsageError


def test_size_changes_are_parsed_with_and_without_the_recorded_size() -> None:
    assert parse_changes([]) == ShapeChange() and batch_change(8, 4) == parse_changes(["batch=4:8"])
    assert batch_change(8) == ShapeChange((SizeChange("batch", 8),))
    assert parse_changes(["batch=2:1", "seq=7"]).sizes == (SizeChange("batch", 1, 2), SizeChange("seq", 7))
    assert parse_changes(["batch=2147483647"]).sizes[0].new_size == 2**31 - 1
    assert parse_changes(["batch=2147483647:1"]).sizes[0].recorded_size == 2**31 - 1


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["batch=1", "batch=2"], "--set batch: given more than once"),
        (["width=3"], "unknown dimension 'width'; one of batch, seq"),
        (["batch"], "give NAME=SIZE or NAME=RECORDED:SIZE"), (["batch=x"], "in whole numbers"),
        (["batch=1:2:3"], "in whole numbers"), (["batch=0"], "the new size must be 1 or more"),
        (["batch=2147483648"], r"below 2\^31"), (["batch=1:4"], "the recorded size 2 or more"),
        (["batch=2147483648:4"], r"below 2\^31"),
    ],
)  # fmt: skip
def test_invalid_size_changes_are_refused_with_the_reason(texts: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_changes(texts)
