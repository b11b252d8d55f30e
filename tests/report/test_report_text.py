"""The text of a small trace made by hand, every number of which follows from its events."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from etplus.analysis.device_memory import DeviceMemory
from etplus.analysis.summary import Analysis, analyze
from etplus.report.report_text import _holders, _memory, table_text, text_of
from made_traces import kernel, launch, op, traced
from traces import analysis_of


def small() -> Analysis:
    """Two operators of 3 + 1 kernels; kernels run from 20 to 30, 30 to 36 and 60 to 64 µs, and from 70 to 90."""
    products = [([64, 32], "float"), ([32, 16], "float")]
    events = [
        op("aten::mm", 0, 50, products), launch(1, 5, 2), launch(2, 10), launch(3, 20), op("aten::add", 60, 40),
        launch(4, 62), kernel("gemm", 1, 20, 10), kernel("gemm", 2, 30, 6), kernel("fill", 3, 60, 4),
        kernel("add", 4, 70, 20),
    ]  # fmt: skip
    return analyze(traced(events))


def table_of(text: str, title: str) -> list[list[str]]:
    """Cells of a table, split where two spaces or more are, without its title; the head first."""
    (part,) = (part for part in text.split("\n\n") if part.startswith(title))
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in part.splitlines()[1:]]


def test_the_report_head_gives_size_device_peaks_and_host_time() -> None:
    lines = text_of(small(), 200).split("\n\n")[0].splitlines()
    assert lines[1] == "size    2 CPU calls, 4 runtime calls, 4 GPU events, 0.100 ms"
    assert lines[2].startswith("device  0 NVIDIA H100 80GB HBM3: H100 SXM, f")
    assert lines[2].endswith(" TFLOP/s, 3350 GB/s")
    assert lines[3] == "peaks   FLOPs are known for 50% of GPU time; peak shares cover only this time"
    assert lines[4] == "host    0.100 ms and 0.000 ms data loading; 0.005 ms in runtime calls"


def test_without_a_known_device_no_peaks_are_told() -> None:
    events = [
        op("aten::mm", 0, 50, [([64, 32], "float"), ([32, 16], "float")]),
        launch(1, 5),
        kernel("gemm", 1, 20, 10),
    ]
    analysis = analyze(traced(events, "Some GPU"))
    assert analysis.flops_coverage and "\npeaks " not in text_of(analysis, 200)


def test_tables_of_other_packages_come_last() -> None:
    analysis = small()
    analysis.__dict__["others"] = {"mine": analysis.launches}
    assert text_of(analysis, 200).endswith(table_text(analysis.launches, 200))


def test_notes_and_damage_are_told_and_long_lines_are_wrapped() -> None:
    lines = text_of(replace(small(), notes=("first note", "word " * 30)), 60).split("\n\n")[0].splitlines()
    assert "note    first note" in lines
    at = lines.index("note    first note")
    assert lines[at + 1].startswith("note    word word") and lines[at + 2].startswith("        word")
    assert max(map(len, lines[at:])) <= 60


def test_device_time_is_listed_by_operator_up_to_the_top() -> None:
    found = table_of(text_of(small(), 200), "device time by operator")
    assert found[1:] == [["aten::add", "1", "0.020", "20.00", "50.0%"], ["aten::mm", "3", "0.020", "6.67", "50.0%"]]
    found = table_of(text_of(small(), 200, top=1), "device time by operator (the first 1 of 2)")
    assert found[1:] == [["aten::add", "1", "0.020", "20.00", "50.0%"]]


def test_idle_time_is_listed_by_cause_with_the_queue() -> None:
    (row,) = table_of(text_of(small(), 200), "idle time by cause")[1:]
    assert row[:4] == ["device 0 stream 7", "0.000", "0.030", "0.000"]
    assert row[4:6] == ["0.020", "0.010"] and row[6] == "2"


def test_a_stream_without_launches_has_no_queue() -> None:
    analysis = analyze(traced([kernel("gemm", 1, 20, 10), kernel("gemm", 2, 90, 10)]))
    (row,) = table_of(text_of(analysis, 200), "idle time by cause")[1:]
    assert row == ["device 0 stream 7", "0.000", "0.000", "0.060", "0.000", "0.000"]


def test_a_table_says_where_it_is_cut() -> None:
    rows = small().kernels
    assert table_text([], 200) == ""
    assert table_text(rows, 200).splitlines()[0] == rows[0].title
    assert table_text(rows, 200, 2).splitlines()[0] == f"{rows[0].title} (the first 2 of 3)"
    assert len(table_text(rows, 200, 2).splitlines()) == 2 + 2 * 2  # a line above each row
    assert table_text(rows, 200, 3).splitlines()[0] == rows[0].title


def test_the_text_gives_the_mean_of_the_iterations() -> None:
    events = [op(f"ProfilerStep#{n}", 100 * n, 100, cat="user_annotation") for n in range(4)]
    assert "\nmean    0.100 ms" in text_of(analyze(traced([*events, op("aten::mm", 10, 5)])), 200)


def memory_of(device: str, peak: int, *holders: tuple[str, str, int, int], reserved: int = 0) -> DeviceMemory:
    rows = [SimpleNamespace(category=of, operator=by, blocks=many, bytes=size) for of, by, many, size in holders]
    found = SimpleNamespace(
        device=device, peak_bytes=peak, peak_ns=3_000_000, base=0, allocated=np.array([0, peak, 5_000_000]),
        reserved_peak_bytes=reserved or None, blocks=7,
        holders=rows, by_category={"gradient": 4_000_000}, source="memory events",
    )  # fmt: skip
    return cast("DeviceMemory", found)


def analysis_with(*memory: DeviceMemory) -> Analysis:
    trace = SimpleNamespace(span=SimpleNamespace(start=1_000_000))
    return cast("Analysis", SimpleNamespace(memory=memory, trace=trace))


def test_memory_at_the_peak_is_listed_by_device_and_holder() -> None:
    first = memory_of("cuda:0", 8_000_000, ("gradient", "a", 1, 2_000_000), ("gradient", "b", 2, 3_000_000),
                      ("gradient", "a", 3, 2_000_000), reserved=9_000_000)  # fmt: skip
    analysis = analysis_with(first, memory_of("cpu", 80_000), memory_of("cuda:1", 79_999))
    cells = [line.split() for line in _memory(analysis, 200).splitlines()]
    assert cells[0] == ["memory", "allocated,", "from", "memory", "events"]
    assert cells[2] == ["cuda:0", "8.000", "2.000", "0.000", "5.000", "9.000", "7"]
    assert cells[3] == ["cpu", "0.080", "2.000", "0.000", "5.000", "7"]
    tables = _holders(analysis, 200, 1).split("\n\n")
    assert [table.split(",")[0] for table in tables] == [
        "memory held at the peak of cuda:0", "memory held at the peak of cpu"
    ], "of devices with less than a hundredth of the first one's peak there is none"  # fmt: skip
    lines = tables[0].splitlines()
    assert lines[0] == "memory held at the peak of cuda:0, MB: gradient 4.000 (the first 1 of 2)"
    assert lines[2].split() == ["a", "gradient", "4", "4.000", "50.0%"]
    assert len(lines) == 3 and _memory(analysis_with(), 200) == ""


@pytest.mark.parametrize("peak", [0, 10])
def test_a_share_of_nothing_is_unknown(peak: int) -> None:
    memory: Any = memory_of("cpu", peak, ("gradient", "a", 1, 5))
    assert _holders(analysis_with(memory), 200, 9).splitlines()[2].split()[4:] == (["50.0%"] if peak else [])


def test_the_text_lists_sequences_that_occur_again() -> None:
    analysis = analysis_of("gpu-kineto/alexnet")
    once = [row for row in analysis.sequences if row.count == 1]
    often = [row for row in analysis.sequences if row.count > 1]
    text = text_of(analysis, 100, top=len(often))
    assert once and often
    (table,) = (part for part in text.split("\n\n") if part.startswith("sequences of kernels"))
    assert len(table.splitlines()) == 2 + 2 * len(often) and "(the first" not in table.splitlines()[0]
