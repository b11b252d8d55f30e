"""An analysis table: how long the kernels of each stream take. Text, JSON, CSV, page and data frames show it."""

from etplus.analysis import Analysis, Column, Row, Table


class StreamTime(Row):
    stream: int
    kernels: int
    total_ns: int

    title = "time by stream"
    columns = (Column("stream", "stream"), Column("kernels", "kernels"), Column("total, ms", "total_ns", "ms"))


def stream_time(analysis: Analysis) -> Table[StreamTime]:
    kernels = list(analysis.trace.kernels)
    rows = []
    for stream in sorted({kernel.stream for kernel in kernels}):
        durations = [kernel.duration_ns for kernel in kernels if kernel.stream == stream]
        rows.append(StreamTime(stream, len(durations), sum(durations)))
    return Table(StreamTime, rows)
