"""Which copies hold the thread that calls for them."""

import numpy as np
import pytest
from etplus.trace.host_waits import (
    DEVICE_SYNCHRONIZE,
    ROUNDING_NS,
    SYNCHRONIZE,
    blocking_copies,
    named,
    synchronous_readback,
)

NAMES = ["cudaMemcpy", "cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)", "Memcpy DtoH (Device -> Pinned)",
         "Memcpy DtoD (Device -> Device)", "cudaLaunchKernel"]  # fmt: skip


@pytest.mark.parametrize(
    ("copy", "call", "late", "blocks", "reads_back"),
    [(2, 0, 0, True, True), (2, 1, 0, True, False), (3, 1, 0, False, False), (3, 0, 0, True, True),
     (4, 0, 0, True, False), (2, 1, ROUNDING_NS, True, False), (2, 1, ROUNDING_NS + 1, False, False),
     (2, 5, 0, False, False), (4, 5, 0, False, False)],
)  # fmt: skip
def test_sync_and_pageable_copies_block_calls(copy: int, call: int, late: int, blocks: bool, reads_back: bool) -> None:
    codes = np.array([copy]), np.array([call])
    assert blocking_copies(NAMES, *codes, np.array([late])).tolist() == [blocks]
    assert synchronous_readback(NAMES, *codes).tolist() == [reads_back]


def test_names_tell_synchronizations_and_those_of_whole_devices() -> None:
    names = ["cudaDeviceSynchronize", "hipStreamSynchronize", "cuCtxSynchronize", "cudaEventSynchronize", "cudaMemcpy"]
    codes = np.arange(5)
    assert named(names, codes, SYNCHRONIZE).tolist() == [True, True, True, True, False]
    assert named(names, codes, DEVICE_SYNCHRONIZE).tolist() == [True, False, True, False, False]
