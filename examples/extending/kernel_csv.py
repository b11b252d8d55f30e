"""An exporter that writes one CSV line per kernel."""

from collections.abc import Mapping
from dataclasses import dataclass

from etplus import Trace
from etplus.converters import Conversion, open_output


@dataclass(frozen=True)
class CsvOptions:
    min_ns: int = 0


class KernelCsv:
    name, summary = "kernel-csv", "one line per kernel: rank, start in ns, duration in ns, name"
    suffixes = (".kernels.csv", ".kernels.csv.gz")
    inputs = "ranks"
    options = CsvOptions

    def write(self, traces: Mapping[int, Trace], path: str, options: CsvOptions) -> Conversion:
        lines = [
            f"{rank},{kernel.start_ns},{kernel.duration_ns},{kernel.name}\n"
            for rank, trace in traces.items()
            for kernel in trace.kernels
            if kernel.duration_ns >= options.min_ns
        ]
        with open_output(path) as file:
            file.write("".join(lines).encode())
        return Conversion((path,), nodes=len(lines))
