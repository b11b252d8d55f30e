"""Names, codes and bounds that several formats and the model share."""

from __future__ import annotations

import re

ANNOTATION_SCOPE = 7
"""`scope` of a user annotation (record_function) in the ET; Kineto's category `user_annotation`."""
BETWEEN = "(between calls)"
"""Name for CPU time outside of operators and runtime calls: Python, or nothing."""
EXACT_US = 2.0**43
"""Below this many µs a double with three decimals rounds to the right ns (half an ulp is under 0.5 ns)."""
MAX_NAME = 2**16
"""Number of characters of a kernel's name that are searched; real names have thousands at most."""
MAX_NS = 2**62
"""Times and their sums are below this, 146 years, so that int64 does not overflow."""
MAX_DURATION_NS = 2**53
"""No event takes 104 days: a record that claims it is damaged."""
MAX_RANKS = 2**31
"""Ranks are below this."""
NS_PER_UNIT = {"ns": 1, "us": 1000, "µs": 1000, "ms": 1_000_000, "s": 1_000_000_000}
"""Units of time that a user may give."""
EPOCH_NS = 2**50 * 1000
"""Later times (2005) are since the epoch; between 2**50 and 2**51 µs a double holds multiples of 0.25 µs."""
PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)")
"""The annotation that `torch.profiler` puts around each step."""
STRUCTURAL = re.compile(r"\[pytorch\|profiler\|execution_(?:graph|trace)\|(?:process|thread)\]")
"""Names of an ET's process and thread nodes, which are not calls."""
CPU_CATEGORIES = frozenset({"cpu_op", "user_annotation"})
"""Categories of calls that are nodes of the ET."""
KERNEL_CATEGORIES = frozenset({"kernel", "mtia_ccp_events"})
"""Categories of computing and communicating work on a device: CUDA, ROCm, XPU and PrivateUse1 backends; MTIA."""
COPY_CATEGORIES = frozenset({"gpu_memcpy", "gpu_memset"})
"""Categories of memcpys and memsets."""
GPU_CATEGORIES = KERNEL_CATEGORIES | COPY_CATEGORIES
"""Categories of work on a device.

Kineto's activity types (libkineto/include/ActivityType.h) that PyTorch assigns to a device
(`deviceTypeFromActivity` in torch/csrc/profiler/kineto_shim.cpp), without those that do no work: annotations,
synchronization, profiler ranges, and MTIA's counters and insights.
"""
PYTHON_CATEGORY = "python_function"
"""Never needed for linking, and most of a file recorded with_stack."""
GPU_ANNOTATION_CATEGORY = "gpu_user_annotation"
"""From the first to the last event that was launched inside a user annotation, on each stream."""
EDGE_KINDS = ("thread", "launch", "stream", "event", "sync", "thread_handoff", "data", "comm", "graph")
"""Kinds of `edges`; see docs/reference/etplus.md."""
TIMES, PREDICTED = "times", "predicted"
"""Key of an ET+ file's `etplus` and its value if the source has no start times; see `Trace.times_recorded`."""
NO_START_TIMES = "no start times: the timeline is predicted from dependencies and streams"
UNATTACHED_REASONS = (
    "attached",
    "no launcher in the trace",
    "launcher outside any op",
    "outside the window of the ET",
    "parent not in the ET",
    "launched before the recording",
    "no CPU calls were recorded",
    "the event has no correlation",
)
"""Why a GPU event has no parent node, by code; code 0 is an attached one."""
NO_LAUNCHER, OUTSIDE_OPS, OUTSIDE_WINDOW, NOT_IN_ET, LAUNCHED_BEFORE, NO_CPU_CALLS, NO_CORRELATION = range(
    1, len(UNATTACHED_REASONS)
)
UNKNOWN_LAUNCH = (NO_LAUNCHER, LAUNCHED_BEFORE, NO_CPU_CALLS, NO_CORRELATION)
"""Reasons of events whose launch is not in the trace."""
"""Events that are listed by index alone: they are not of the part of the program that the ET covers."""
LONGEST_NAME = 200
"""Operators of libraries have shorter names; longer ones are not searched."""
