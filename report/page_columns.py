"""Describe the columns of the page's tables. The descriptions come from the row classes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from ..analysis.bandwidth import BandwidthRow, CommunicationRow
from ..analysis.breakdown import BreakdownRow, DeviceUse, StreamUse
from ..analysis.device_gaps import Gap
from ..analysis.device_memory import DeviceMemory, MemoryHolder, OutlivingRow
from ..analysis.job_diff import JobDiffRow, RankChange
from ..analysis.kernel_peaks import GemmRow, KernelRow
from ..analysis.launch_queues import IdleCauses, LaunchRow, QueueUse
from ..analysis.modules import ModuleRow
from ..analysis.operators import OperatorRow
from ..analysis.origins import PhaseRow, SourceRow
from ..analysis.place_diff import LineRow, PathRow
from ..analysis.sequences import KernelSequence
from ..analysis.serving_steps import PhaseChange, ServingPhase, ServingStep
from ..analysis.table import Column, Row, column, inferred
from ..analysis.trace_diff import DiffRow
from .path_table import PathPart


class _Added(Row):
    variants: int = column("count", "Number of kernels with this name, if there are several.")
    kernel_kind: str = column("text", "Kind of the kernel.", "kind")
    cause: str = inferred("text", "Cause of the gap: whether the next event was already launched when the gap began.")
    place: str = column("name", "File and line.", "line")
    remark: str = column(
        "text", "Marks library code, and counts the calls that are fused with calls of other lines.", " "
    )
    what: str = column("text", "New or changed content of the line.", "new")
    share: float = column("share", "Share of the whole.")


_BUSY = "busy_ns idle_ns busy_share busy_share_of_gpu_span"
_SIDES = "name a_count a_total_ns b_count b_total_ns change_ns ratio rank rank_change_ns"
_SERVED = " ".join(f"{side}_{name}" for side in "ab" for name in ("steps", "mean_latency_ns", "tokens_per_second"))
# Each table has a row class, the columns that the page shows, and optionally the class of rows that are joined to it.
_TABLES: dict[str, tuple[type[Row], str] | tuple[type[Row], str, type[Row]]] = {
    "breakdown": (BreakdownRow, "kernel count total_ns mean_ns share op modules shapes device stream"),
    "operators": (
        OperatorRow, "op shapes count self_ns total_ns device_self_ns device_total_ns launches",
    ),
    "modules": (ModuleRow, "module count self_ns total_ns device_self_ns device_total_ns backward_total_ns path"),
    "sources": (
        SourceRow, "place function remark device_self_ns device_total_ns backward_ns launches idle_ns host_ns calls",
    ),
    "phases": (PhaseRow, "phase calls host_ns device_ns share launches idle_ns"),
    "kernels": (
        KernelRow, "kernel variants kernel_kind dtype device count total_ns mean_ns flops_per_second"
        " operator_flops_per_second flops_share bytes_per_second most_bytes_per_second bytes_share intensity bound ops",
    ),
    "gemms": (
        GemmRow, "op dtype device batch m n k count total_ns mean_ns flops_per_second flops_share bytes_per_second"
        " bytes_share bound kernels",
    ),
    "device_use": (
        DeviceUse, f"device window_ns {_BUSY} overlapped_ns compute_ns copy_ns communication_ns"
        " exposed_communication_ns",
    ),
    "streams": (StreamUse, f"device stream events total_ns {_BUSY}"),
    "gaps": (Gap, "idle_ns start cause launch_ns host host_ns launched_by source after before"),
    "idle_causes": (
        IdleCauses, "device stream idle_ns host_wait_ns kernel_wait_ns other_ns before_first_ns after_last_ns longest"
        " mean full_ns", QueueUse,
    ),
    "launches": (LaunchRow, "call count median_call_ns median_delay_ns max_delay_ns short long_calls long_delays"),
    "copies": (BandwidthRow, "kind device count bytes total_ns busy_ns bytes_per_second"),
    "sequences": (KernelSequence, "op count gpu_ns host_ns kernels"),
    "memory": (
        DeviceMemory, "device peak_bytes before_bytes end_bytes reserved_peak_bytes blocks allocated_bytes",
    ),
    "memory_holders": (MemoryHolder, "operator category modules source blocks bytes share"),
    "memory_outliving": (OutlivingRow, "operator category device blocks bytes next_bytes kept_bytes"),
    "communication": (
        CommunicationRow, "collective dtype group group_size bytes count total_ns mean_ns min_ns algorithm_bandwidth"
        " bus_bandwidth",
    ),
    "serving_phases": (
        ServingPhase, "phase steps tokens mean_latency_ns p50_latency_ns p90_latency_ns p99_latency_ns longest_ns"
        " device_ns idle_ns host_before_ns tokens_per_second ns_per_output_token ns_per_prefill_token",
    ),
    "serving_steps": (
        ServingStep, "step phase prefill_requests prefill_tokens decode_requests decode_tokens keys latency_ns"
        " host_before_ns device_ns idle_ns events tokens_per_second flops bytes",
    ),
    "critical_path": (PathPart, "kind ns share count kernel operator module place"),
    "slower": (DiffRow, "name change_ns ratio"),
    "faster": (DiffRow, "name change_ns ratio"),
    "ops": (JobDiffRow, _SIDES),
    "diff_kernels": (JobDiffRow, _SIDES),
    "host_ops": (JobDiffRow, _SIDES),
    "diff_ranks": (
        RankChange, "rank a_ns b_ns change_ns ratio a_device_ns b_device_ns a_communication_ns b_communication_ns",
    ),
    "lines_device": (LineRow, "place what change_ns a_device_ns b_device_ns a_calls b_calls"),
    "lines_host": (LineRow, "place what change_ns a_host_ns b_host_ns a_calls b_calls"),
    "diff_phases": (PhaseChange, f"phase {_SERVED} ratio"),
    "paths_device": (PathRow, "path a_launched_ns b_launched_ns change_launched_ns"),
    "paths_host": (PathRow, "path a_self_ns b_self_ns change_self_ns"),
}  # fmt: skip
# Each of these columns uses the unit of the column that it maps to, so that readers can compare the numbers.
_LIKE = {
    "self_ns": "total_ns", "device_self_ns": "device_total_ns", "backward_ns": "device_total_ns",
    "backward_total_ns": "device_total_ns", "min_ns": "mean_ns", "host_wait_ns": "idle_ns", "kernel_wait_ns": "idle_ns",
    "other_ns": "idle_ns", "before_first_ns": "idle_ns", "after_last_ns": "idle_ns",
    "bus_bandwidth": "algorithm_bandwidth", "next_bytes": "bytes", "kept_bytes": "bytes",
    "change_ns": "a_total_ns", "rank_change_ns": "a_total_ns",
}  # fmt: skip
# If one of these columns is narrow, the page cuts off the beginning of the text, because the end matters more.
_ENDS_MATTER = ("modules", "path", "place", "source", "module")


@cache
def page_columns() -> dict[str, list[dict[str, Any]]]:
    return {
        name: [_described((_Added, *joined, kind), shown, names.split()) for shown in names.split()]
        for name, (kind, names, *joined) in _TABLES.items()
    }


def _described(kinds: Sequence[type[Row]], name: str, shown: Sequence[str]) -> dict[str, Any]:
    columns: dict[str, Column] = {one.name: one for kind in kinds for one in kind.columns()}
    found = columns[name]
    described: dict[str, Any] = {
        "key": name,
        "title": found.heading[:1].upper() + found.heading[1:],
        "unit": "×" if name == "ratio" else found.unit,
        "hint": found.doc,
    }
    like = _LIKE.get(name) or (f"a_{name[2:]}" if name.startswith("b_") else None)
    if like in shown:
        described["like"] = like
    if name in _ENDS_MATTER:
        described["front"] = True
    if name == "device" and found.unit == "number":
        described["several"] = True
    if name == "module" and "depth" in columns:
        described["indent"] = "depth"
    return described
