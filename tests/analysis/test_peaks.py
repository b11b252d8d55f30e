"""No kernel is faster than its device: shares of peaks and the least times of work, on every real trace."""

import numpy as np
import pytest
from etplus.analysis.devices import Device, known_devices
from etplus.analysis.event_work import work_of_events
from etplus.analysis.kernel_peaks import find_devices, from_memory, gemm_table, kernel_table
from etplus.converters.open import load
from etplus.linker.captured_graphs import link_captured_graphs
from etplus.linker.pipeline import read_captures
from etplus.planning.costs.task import bound_of, gpu_tasks
from etplus.trace.trace import Trace
from etplus.trace.unattached import with_unattached
from made_traces import kernel, launch, op, traced
from support import shared_trace

CLOCK_NS = 1000
"""Times of some traces are whole µs."""


def check(trace: Trace) -> int:
    """Hold each event against its device; returns how many have bytes."""
    trace = with_unattached(trace)
    work, devices, gpu = work_of_events(trace), find_devices(trace), trace.gpu
    for row in [*kernel_table(trace, work, devices), *gemm_table(trace, work, devices)]:
        assert (row.bytes_share or 0) <= 1 and (row.flops_share or 0) <= 1, row
    by_name = {device.name: device for device in known_devices()}
    for event, task in enumerate(gpu_tasks(trace)):
        device, ns = devices.get(int(gpu.device[event])), int(gpu.dur[event]) + CLOCK_NS
        if device is None:
            continue
        name = trace.names[gpu.name[event]]
        beyond_cache = int(work.bytes[event]) - 2 * (device.l2_bytes or 0)
        assert beyond_cache <= device.bytes_per_second * ns / 1e9, (name, task.op, task.inputs, ns)
        peak = device.peak_flops(work.dtypes[work.dtype[event]])
        assert peak is None or work.flops[event] <= peak * ns / 1e9, (name, task.op, task.inputs, ns)
        bound = bound_of(task, by_name)
        assert bound is None or bound.ns <= ns, (name, task.op, task.inputs, bound, ns)
    return int((work.bytes >= 0).sum())


def test_no_kernel_of_a_recording_is_faster_than_its_device() -> None:
    for name in ("gpu-kineto/h100_bert", "serving/sglang_prefilldecode"):
        assert check(load(shared_trace(f"{name}.json.gz")))
    replay, capture = (shared_trace(f"graph-capture/sglang_decode.{kind}.json.gz") for kind in ("replay", "capture"))
    assert check(link_captured_graphs(load(replay), read_captures([str(capture)], progress=False))) > 200


@pytest.mark.parametrize(
    ("elements", "us", "bound", "share"),
    [
        (2 * 10**6, 10, "cache", None),  # 16 MB fit the cache
        (2 * 10**6, 2, "cache", None),  # they are moved at 8 TB/s
        (2 * 10**7, 100, "memory", 160e6 / 100e-6 / 3350e9),
        (2 * 10**7, 40, "cache", None),  # 160 MB at 4 TB/s: up to 105 MB may come from the cache, and remain there
        (2 * 10**7, 10, "memory", 160e6 / 10e-6 / 3350e9),  # no cache explains this: the count or the peak is wrong
    ],
)
def test_data_in_the_cache_have_no_share_of_the_bandwidth(
    elements: int, us: int, bound: str, share: float | None
) -> None:
    events = [op("aten::relu", 0, 30, [([elements], "float")]), launch(1, 5), kernel("elementwise", 1, 20, us)]
    trace = traced(events)
    (row,) = kernel_table(trace)
    assert row.bytes == 8 * elements
    assert (row.bound, row.bytes_share) == (bound, None if share is None else pytest.approx(share))
    assert row.bytes_per_second == pytest.approx(8 * elements / us * 1e6), "the rate is what it is"
    assert from_memory(trace, np.array([8 * elements]), find_devices(trace)).tolist() == [share is not None]


def test_a_device_without_a_known_cache_is_held_against_its_memory() -> None:
    events = [op("aten::relu", 0, 30, [([1000], "float")]), launch(1, 5), kernel("elementwise", 1, 20, 10)]
    spec = Device(name="mine", tflops={"float32": 1}, memory_gb_s=100)
    (row,) = kernel_table(traced(events), devices={0: spec})
    assert (row.bytes_share, row.bound) == (pytest.approx(8000 / 10e-6 / 100e9), "memory")
