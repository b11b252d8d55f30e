"""Devices of allocators as PyTorch writes them."""

from __future__ import annotations

import pytest
from etplus.trace.tables import MemoryEvents, device_label


@pytest.mark.parametrize(
    ("device_type", "device", "label"),
    [(0, -1, "cpu"), (0, 0, "cpu:0"), (1, 0, "cuda:0"), (1, 1, "cuda:1"), (6, 3, "hip:3"), (12, 0, "xpu:0"),
     (20, -1, "privateuseone"), (99, 0, "device type 99:0"), (2, -1, "device type 2")],
)  # fmt: skip
def test_labels(device_type: int, device: int, label: str) -> None:
    assert device_label(device_type, device) == label


def test_no_events() -> None:
    none = MemoryEvents.none()
    assert len(none) == 0
    assert {column: len(values) for column, values in vars(none).items()} == dict.fromkeys(vars(none), 0)
