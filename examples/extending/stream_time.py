"""An analysis table that shows the kernel time per stream. Text, JSON, CSV, page and data frames show it."""

from etplus.analysis import Analysis, Row, Table, column


class StreamTime(Row):
    stream: int = column("number", "Stream.")
    kernels: int = column("count", "Number of kernels.")
    total_ns: int = column("ns", "Sum of the kernel durations.")

    title = "time by stream"


def stream_time(analysis: Analysis) -> Table[StreamTime]:
    kernels = list(analysis.trace.kernels)
    rows = []
    for stream in sorted({kernel.stream for kernel in kernels}):
        durations = [kernel.duration_ns for kernel in kernels if kernel.stream == stream]
        rows.append(StreamTime(stream, len(durations), sum(durations)))
    return Table(StreamTime, rows)
