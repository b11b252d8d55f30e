"""FLOPs and bytes at kernels: none counted twice, every event counted, shares of peaks of real devices."""

from etplus.analysis.event_work import work_of_events
from made_traces import kernel, launch, op, traced


def test_each_gradient_of_a_convolution_counts_half_its_flops() -> None:
    shapes = [([2, 8, 10, 10], "float"), ([2, 4, 12, 12], "float"), ([8, 4, 3, 3], "float")]
    total = 2 * 2 * (2 * 100 * 8 * 4 * 9)
    events = [
        op("aten::convolution_backward", 0, 30, shapes), launch(1, 5), launch(2, 10), launch(3, 15),
        kernel("cudnn::nchwToNhwcKernel", 1, 20, 90), kernel("sm80_dgrad_nhwc", 2, 110, 10),
        kernel("sm80_wgrad_nhwc", 3, 120, 20),
    ]  # fmt: skip
    assert work_of_events(traced(events)).flops.tolist() == [-1, total // 2, total // 2]
