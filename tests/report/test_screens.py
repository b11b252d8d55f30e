"""The screens of analyze, top, why and diff for a made trace, number by number.

Modules: report/report_text.py, top_text, findings_text, diff_text.
"""

from dataclasses import replace
from typing import Any

import etplus
import pytest
from captured import capture_events, encode, replay_events
from etplus.analysis.findings import Evidence, Finding, Findings, Gain, Where
from etplus.analysis.summary import Analysis, analyze
from etplus.analysis.top import top_table
from etplus.jobs.compare import compare_jobs
from etplus.report import diff_text, findings_text, report_text, top_text
from made_traces import Document, event, kernel, kineto_of, launch, memory_event, op, program, traced
from served import Batch, serve


def steps(rank: int = 0, *, slow: float = 0, gpu: bool = True, size: int = 3_000_000) -> Analysis:
    """Two steps of 100 µs with a gemm of 30 µs, an add of 5, and 20 µs of an all-reduce on another stream."""
    events: list[Document] = []
    for step in range(2):
        at, number = 100 * step, 3 * step
        events.append(op(f"ProfilerStep#{step}", at, 100, cat="user_annotation"))
        events += [op("aten::mm", at + 5, 20 + slow), launch(number + 1, at + 10), op("aten::add", at + 35, 10)]
        events += [launch(number + 2, at + 37), launch(number + 3, at + 39)]
        if gpu:
            events += [kernel("gemm", number + 1, at + 20, 30 + slow), kernel("add", number + 2, at + 60 + slow, 5)]
            events.append(kernel("ncclDevKernel_AllReduce", number + 3, at + 70, 20, 9))
    events += [memory_event(15, 2_000_000, 64, size), memory_event(50, -2_000_000, 64, size - 2_000_000)]
    return analyze(traced(events, distributedInfo={"rank": rank, "world_size": 4}))


def finding(name: str, gain_ns: int | None, cost_ns: int | None = 40_000, **where: Any) -> Finding:
    gain = None if gain_ns is None else Gain(gain_ns, gain_ns // 2, 2 * gain_ns, 0.0, 0.0)
    proofs = tuple(Evidence(f"{unit} of it", value, unit, f"etplus analyze {unit}") for value, unit in (
        (2_500_000, "ns"), (0.25, "share"), (3, "calls"), (1.5, "tokens")))  # fmt: skip
    return Finding(name, f"{name} is slow", Where(**where), proofs, cost_ns, gain, (), "inferred", "speed up", "it is")


def found(*findings: Finding, together: Gain | None = None) -> Findings:
    return Findings(findings, together, ("x", "y"), None, 200_000, ("a note",))


def test_the_screen_of_a_trace_shows_steps_kernels_and_problems() -> None:
    many = [finding(name, 10_000 * at) for at, name in enumerate("abcd", 1)]
    assert report_text.render(steps(3), found(*many)).splitlines() == [
        "2 steps, 200 µs (100 µs each), GPU busy 55%, rank 3 (NVIDIA H100 80GB HBM3)",
        "stream 7 idle 130 µs of 200 µs: host late 55 µs, after the last event 35 µs,",
        "before the first event 20 µs, gaps between kernels 20 µs",
        "",
        "kernel                   GPU ms  share  count",
        "gemm                       0.06  54.5%      2",
        "ncclDevKernel_AllReduce    0.04  36.4%      2",
        "add                        0.01   9.1%      2",
        "communication 40 µs, all exposed",
        "memory peak 3 MB on cuda:0, 15 µs after the start",
        "problems (etplus why): a saves 10 µs (5-20); b saves 20 µs (10-40); c saves 30",
        "  µs (15-60)",
        *report_text.render(steps(3), None).splitlines()[10:],
    ]


def test_the_first_two_warnings_and_notes_are_on_the_screen() -> None:
    lines = report_text.render(replace(steps(), notes=("first", "second", "third")), None, 40).splitlines()
    assert [line for line in lines if line.startswith("note ")] == ["note    first", "note    second"]
    assert lines[3] == "", "causes of idle time take two lines at most"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (3_456_000, "3.46 MB"),
        (250_000_000, "250 MB"),
        (12_300_000_000, "12.3 GB"),
        (2_000_900, "2 MB"),
        (10**9, "1 GB"),
    ],
)
def test_the_peak_of_memory_has_three_digits(size: int, text: str) -> None:
    assert f"memory peak {text} on cuda:0, 15 µs after the start" in report_text.render(steps(size=size), None)


def test_a_trace_of_the_host_alone_has_operators() -> None:
    lines = report_text.render(steps(gpu=False), found()).splitlines()
    assert ["operator", "CPU", "ms", "share", "count"] in [line.split() for line in lines]
    assert any(line.split()[:2] == ["aten::mm", "0.04"] for line in lines) and not any("idle" in one for one in lines)
    assert found().none_reason in lines


def test_several_traces_are_shown_as_rows_up_to_eighteen() -> None:
    row = report_text.row_of(steps(3), found(finding("first", None, None), finding("second", 9)))
    assert row == ["rank 3  <bytes>", "0.1", "55.0%", "0.1", "0.0", "second"]
    text = report_text.table_of_rows([[f"rank {at}", "0.1", None, "7.5", None, "x"] for at in range(20)], 80)
    head, *rows = text.splitlines()
    assert head.split("  ")[0] == "20 traces" and "GPU busy" not in head and "idle ms" in head
    assert rows[0].split() == ["rank", "0", "0.1", "7.5", "x"] and rows[17].startswith("rank 17")
    assert rows[18] == "and 2 more with --full"


def test_the_names_with_the_most_time_are_listed_first() -> None:
    analysis = steps()
    lines = top_text.render(top_table([analysis], "kernel"), [analysis], "kernel", top=2).splitlines()
    assert lines[0] == "GPU 0.1 of 0.2 ms busy (55%)      --by operator, module, line, phase, step, rank"
    assert [line.split() for line in lines[1:]] == [
        ["kernel", "total", "ms", "share", "count", "mean", "µs"], ["gemm", "0.06", "54.5%", "2", "30.0"],
        ["ncclDevKernel_AllReduce", "0.04", "36.4%", "2", "20.0"], ["and", "1", "more:", "--top", "3"],
    ]  # fmt: skip
    narrow = top_text.render([], [analysis], "line", 45).splitlines()
    assert narrow[0] == "GPU 0.1 of 0.2 ms busy (55%)      --by kernel" and "no times by line" in narrow[1]
    host = top_text.render(top_table([steps(gpu=False)], "operator"), [steps(gpu=False)], "operator").splitlines()
    assert host[0].startswith("no GPU time  ") and host[2].split() == ["aten::mm", "0.04", "66.7%", "2", "20.0"]


def test_long_labels_are_cut_where_they_tell_least() -> None:
    assert top_text.short_label("folder/deep/train.py:7", "line", 12) == "…/train.py:7"
    assert top_text.short_label("train.py:7", "line", 10) == "train.py:7"
    short = top_text.short_label("a" * 30, "kernel", 12)
    assert short.startswith("aaa") and len(short) == 12


@pytest.mark.parametrize(("graph_us", "hint"), [(49, False), (51, True)])
def test_graphs_that_launch_most_of_the_time_have_a_hint(graph_us: float, hint: bool) -> None:
    events = [op("run", 0, 9), launch(1, 1, name="cudaGraphLaunch"), launch(2, 3), kernel("a", 1, 10, graph_us)]
    lines = top_text.graph_hint([traced([*events, kernel("b", 2, 90, 100 - graph_us)])])
    assert lines == (["note   graphs launched 51% of GPU time; --graph-capture FILE shows operators"] if hint else [])


def test_serving_steps_have_latency_and_throughput_by_phase() -> None:
    made = serve([Batch(prefill=[(64, 64)]), Batch(decode=[(1, 65), (1, 9)]), Batch(decode=[(1, 66), (1, 10)])], seed=3)
    analysis = analyze(made.trace())
    prefill, decode, *_ = analysis.serving_phases
    first, second, gpu = top_text.serving_lines([analysis], 200)
    assert first.startswith("prefill: 1 step, mean ") and ", TTFT " in first and "per output token" not in first
    assert second.startswith("decode: 2 steps, mean ") and ", p99 " in second and ", per output token " in second
    assert first.endswith(f", {prefill.tokens_per_second:,.0f} tokens/s")
    assert second.endswith(f", {decode.tokens_per_second:,.0f} tokens/s") and gpu.startswith("GPU time: ")
    shares = [float(part.split()[-1][:-1]) for part in gpu.removeprefix("GPU time: ").split(", ")]
    assert sum(shares) == pytest.approx(100, abs=2)


def test_problems_are_lines_and_the_first_have_advice() -> None:
    many = [finding(f"problem-{at}", 1_000_000 * (10 - at), source="a/b/train.py:7") for at in range(8)]
    many.insert(1, finding("cost", None, 30_000, rank=2, operator="aten::mm"))
    together = Gain(20_000_000, 20_000_000, 20_000_000, 0.0, 0.0)
    text = findings_text.render(found(*many, finding("note", None, None), together=together), shell="x", recorded="all")
    lines = text.splitlines()
    assert lines[0] == "all: 9 problems, 1 note (2 checks)"
    assert [line.split() for line in lines[2:6]] == [
        ["#", "problem", "saves", "where"], ["1", "problem-0", "10.0", "ms", "(5.0-20.0)", "a/b/train.py:7"],
        ["problem-0", "is", "slow"], ["speed", "up"],
    ]  # fmt: skip
    assert lines[6].split() == ["2", "cost", "at", "most", "30", "µs", "rank", "2,", "aten::mm"]
    assert [line[:1] for line in lines if line[:1].isdigit()] == [*"1234567"]
    assert lines[-5:] == [
        "   and 2 more with --full", "   the first three together save 20.0 ms", "note   note is slow", "note   a note",
        "evidence  etplus why x --show 1",
    ]  # fmt: skip
    assert findings_text.render(found(), recorded="all") == f"all: {found().none_reason}\nnote   a note"


def test_one_problem_has_its_evidence_and_place() -> None:
    one = finding("a", 20_000, rank=2, source="t.py:7", module="Net", operator="aten::mm", kernel="k", phase="forward")
    assert findings_text.render_one(one, 80, 3, 200_000).splitlines() == [
        "3.      a: a is slow", "gain    0.020 ms (0.010 to 0.040 ms), 10.0%; 0.040 ms at stake; inferred",
        "where   rank 2 > t.py:7 > Net > aten::mm > k > (forward)", "proof   ns of it: 2.500 ms",
        "proof   share of it: 25.0%", "proof   calls of it: 3", "proof   tokens of it: 1.50 tokens", "try     speed up",
        "check   it is", "show    etplus analyze ns",
    ]  # fmt: skip
    cost = findings_text.render_one(finding("b", None)).splitlines()
    assert cost[1] == "cost    0.040 ms at stake; not replayed; inferred"
    assert findings_text.render_full(found(one)).splitlines()[0] == "1 problem in 0.200 ms"


def test_recorded_text_gives_ranks_or_steps_time_and_gpu_use() -> None:
    ranks = [steps(rank).trace for rank in range(2)]
    assert findings_text.recorded_text(ranks) == "2 ranks, 200 µs, GPU busy 55%"
    assert findings_text.recorded_text(ranks[:1]) == "2 steps, 200 µs (100 µs each), GPU busy 55%"
    assert findings_text.recorded_text([traced([op("a", 0, 5)])]) == "trace 5.0 µs"


def test_a_diff_of_two_traces_lists_changed_operators_and_kernels() -> None:
    changed = etplus.diff(steps().trace, steps(slow=6).trace)
    lines = diff_text.render(changed, shell="a b").splitlines()
    assert lines[:2] == ["step 100 µs in both", "GPU time 55.0 -> 61.0 µs (+10.9%, slower)"]
    assert lines[2].startswith("   +0.006 ms  ") and "gemm" in lines[2]
    assert [line.split() for line in lines[-3:]] == [
        ["operator", "A", "GPU", "ms", "B", "GPU", "ms", "B−A"], ["aten::mm", "0.030", "0.036", "+0.006"],
        ["evidence", "etplus", "diff", "a", "b", "--full"],
    ]  # fmt: skip
    tables = {part.splitlines()[0]: part.splitlines() for part in diff_text.render_full(changed).split("\n\n")}
    kernels = tables["kernels, by change in time"]
    assert kernels[1].split() == "A count A ms A mean µs B count B ms B mean µs B−A ms B/A".split()
    assert kernels[2] == "gemm" and kernels[3].split() == ["1", "0.030", "30.0", "1", "0.036", "36.0", "+0.006", "1.20"]
    paths = tables["call paths, by change in time"]
    assert paths[2:] == ["ProfilerStep# / aten::mm", paths[3]]
    assert paths[3].split() == ["1", "0.030", "1", "0.036", "+0.006"]
    back = diff_text.render(etplus.diff(steps(slow=6).trace, steps().trace)).splitlines()
    assert back[1] == "GPU time 61.0 -> 55.0 µs (-9.8%, faster)"


def test_equal_traces_changed_nothing() -> None:
    same = etplus.diff(steps().trace, steps().trace)
    assert diff_text.render(same).splitlines() == ["step 100 µs in both", "GPU time 55 µs in both",
                                                   "nothing changed by more than 1%"]  # fmt: skip
    assert len(diff_text.render_full(same).split("\n\n")) == 1, "no table without changes"


def test_a_diff_lists_only_the_source_lines_that_changed() -> None:
    before, after = ({7: ("aten::mm", 30.0), 8: ("aten::relu", 20.0)}, {7: ("aten::mm", 90.0), 8: ("aten::relu", 20.0)})
    a, b = (etplus.link(None, kineto_of(program(lines))) for lines in (before, after))
    lines = [line.split() for line in diff_text.render(etplus.diff(a, b)).splitlines()]
    assert ["source", "line", "A", "GPU", "ms", "B", "GPU", "ms", "B−A"] in lines
    assert ["train.py:7", "(step)", "0.030", "0.090", "+0.060"] in lines
    assert not any("relu" in " ".join(line) for line in lines)


def test_two_jobs_are_compared_over_the_ranks_they_share() -> None:
    a, b = (
        etplus.Job([steps(rank, slow=slow * rank).trace for rank in range(ranks)]) for slow, ranks in ((0, 3), (5, 2))
    )
    changed = compare_jobs(a, b)
    lines = diff_text.render_job(changed, shell="a b").splitlines()
    assert lines[:3] == ["step of the slowest rank 100 µs in both; 2 ranks compared (0-1)",
                         "GPU time 110.0 -> 115.0 µs (+4.5%, slower)", "only in A, left out: ranks 2"]  # fmt: skip
    assert lines[-2].split() == ["aten::mm", "0.060", "0.065", "+0.005"]
    assert lines[-1] == "evidence  etplus diff a b --ranks 0"
    full = diff_text.render_full(changed)
    assert "kernels, all ranks, by change in time" in full and "only in A, left out: ranks 2" in full


def test_a_diff_tells_what_was_launched_outside_steps() -> None:
    def with_setup(us: float) -> etplus.Trace:
        events = [launch(1, 1), kernel("set-up", 1, 2, us)] if us else []
        events += [event("user_annotation", f"ProfilerStep#{n}", 10 + 100 * n, 80) for n in range(2)]
        events += [op("aten::mm", 20, 30), launch(2, 21), kernel("gemm", 2, 40, 10)]
        return traced(events)

    text = " ".join(diff_text.render_full(etplus.diff(with_setup(7), with_setup(0))).split())
    assert "means per step; steps: 2 in A, 2 in B; launched outside steps and left out: 0.007 ms (1 event) of A" in text
    whole = " ".join(diff_text.render_full(etplus.diff(with_setup(7), with_setup(0), total=True)).split())
    assert "totals of the whole traces; steps: 2 in A, 2 in B" in whole


def test_names_take_the_room_that_the_columns_leave() -> None:
    analysis = analyze(traced([op("aten::mm", 0, 50), launch(1, 10), kernel("k" * 200, 1, 30, 60)]))
    (row,) = [line for line in report_text.render(analysis, None, 80).splitlines() if line.startswith("kkk")]
    assert len(row.split()[0]) == 80 - 38
    text = findings_text.render(found(finding("late", 9_000_000, operator="a" * 99)), 80)
    (row,) = [line for line in text.splitlines() if line.startswith("1  late")]
    assert len(row) == 80 and "aaaa" in row


def test_changes_of_a_thousandth_are_not_shown() -> None:
    rows = [("equal", 0.0, 100.0), ("more", 0.0, 101.0), ("less", 102.0, 0.0)]
    lines = diff_text._changes("operator", "GPU ms", rows, 100_000, 80)
    assert [line.split()[0] for line in lines[1:]] == ["less", "more"]
    one_gpu = diff_text.render(etplus.diff(steps().trace, steps(gpu=False).trace))
    assert "A GPU ms" in one_gpu and "A CPU ms" not in one_gpu


def test_one_step_is_told_by_its_length() -> None:
    events = [op("ProfilerStep#0", 0, 100, cat="user_annotation"), op("a", 5, 9)]
    assert findings_text.recorded_text([traced(events)]) == "step 100 µs"


def test_captured_graphs_need_no_hint_and_three_phases_are_shown() -> None:
    launches = [("gemm", "aten::mm")]
    replayed = encode(replay_events([[("gemm", 7)]] * 2))
    bare, linked = (
        etplus.link(None, replayed, graph_captures=given) for given in ([], [encode(capture_events([launches]))])
    )
    assert top_text.graph_hint([bare]) and not top_text.graph_hint([linked])
    batches = [Batch(prefill=[(64, 64)]), Batch(decode=[(1, 65)]), Batch(prefill=[(8, 8)], decode=[(1, 66)])]
    assert len(list(top_text.serving_lines([analyze(serve(batches).trace())] * 2, 200))) == 4
