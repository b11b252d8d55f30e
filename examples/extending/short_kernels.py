"""A finding that reports many kernels that take less time than their launch."""

from collections.abc import Iterator

from etplus.analysis.findings import Candidate, Case, Evidence, Intervention, where_of

LAUNCH_NS = 5_000


class ShortKernels:
    id = "short-kernels"

    def find(self, case: Case) -> Iterator[Candidate]:
        gpu, kernel = case.trace.gpu, case.trace.is_kernel
        short = kernel & (gpu.dur < LAUNCH_NS)
        if short.sum() > kernel.sum() / 2:
            count, rows = int(short.sum()), gpu.source[short]
            yield Candidate(
                self.id,
                f"{count} of {kernel.sum()} kernels are shorter than their launch",
                where_of(case.trace, rows),
                (Evidence("kernels under 5 µs", count, "events", f"etplus analyze {case.trace.file}"),),
                cost_ns=int((LAUNCH_NS - gpu.dur[short]).sum()),
                certainty="confirmed",
                advice="capture a CUDA graph, or use torch.compile",
                check="fewer kernels in `etplus analyze`",
                interventions=(Intervention("kernel*0.5", rows),),
                least_gain=0,  # report the finding even if the gain is zero
            )
