"""Names, codes and bounds that several formats and the model share."""

from __future__ import annotations

import re

ANNOTATION_SCOPE = 7  # the ET's `scope` for user annotations (record_function); Kineto: `user_annotation`
BETWEEN = "(between calls)"  # CPU time outside operators and runtime calls, when Python code runs or the thread is idle
# Below this many µs, a double with three decimals rounds to the correct ns (half an ulp is under 0.5 ns).
EXACT_US = 2.0**43
MAX_NAME = 2**16  # Maximum number of characters to search in a kernel name. Real names are much shorter.
MAX_NS = 2**62  # Upper bound of times and their sums (146 years), so that int64 does not overflow.
MAX_DURATION_NS = 2**53  # A record with a longer duration (104 days) is treated as damaged.
MAX_RANKS = 2**31
NS_PER_UNIT = {"ns": 1, "us": 1000, "µs": 1000, "ms": 1_000_000, "s": 1_000_000_000}  # time units for options
# Later times (after 2005) count from the epoch. Doubles from 2**50 to 2**51 µs have a resolution of 0.25 µs.
EPOCH_NS = 2**50 * 1000
PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)")  # `torch.profiler` puts this annotation around each step
# Names of the process and thread nodes in an ET. These nodes are not calls.
STRUCTURAL = re.compile(r"\[pytorch\|profiler\|execution_(?:graph|trace)\|(?:process|thread)\]")
CPU_CATEGORIES = frozenset({"cpu_op", "user_annotation"})  # an ET contains these calls as nodes
# Categories of kernels on CUDA, ROCm, XPU and PrivateUse1 backends, and of all work on MTIA.
KERNEL_CATEGORIES = frozenset({"kernel", "mtia_ccp_events"})
COPY_CATEGORIES = frozenset({"gpu_memcpy", "gpu_memset"})
# PyTorch assigns these activity types of Kineto (libkineto/include/ActivityType.h) to a device.
# See `deviceTypeFromActivity` in torch/csrc/profiler/kineto_shim.cpp. The list omits types that do no work:
# annotations, synchronization, profiler ranges, and the counters and insights of MTIA.
GPU_CATEGORIES = KERNEL_CATEGORIES | COPY_CATEGORIES
PYTHON_CATEGORY = "python_function"  # most events of a trace with stacks; linking does not need them
# Kineto writes one such event per stream, from the first to the last GPU event launched inside a user annotation.
GPU_ANNOTATION_CATEGORY = "gpu_user_annotation"
EDGE_KINDS = ("thread", "launch", "stream", "event", "sync", "thread_handoff", "data", "comm", "graph")
# If the source has no start times, `etplus` of an ET+ file has this key and value; see `Trace.times_recorded`.
TIMES, PREDICTED = "times", "predicted"
NO_START_TIMES = "no start times: the timeline is predicted from dependencies and streams"
# Reasons why a GPU event has no parent node, indexed by code; code 0 means that the event is attached.
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
NO_LAUNCHER, OUTSIDE_OPS, OUTSIDE_WINDOW, NOT_IN_ET, LAUNCHED_BEFORE, NO_CPU_CALLS, NO_CORRELATION = range(
    1, len(UNATTACHED_REASONS)
)
UNKNOWN_LAUNCH = (NO_LAUNCHER, LAUNCHED_BEFORE, NO_CPU_CALLS, NO_CORRELATION)  # the launch is not in the trace
LONGEST_NAME = 200  # Operator names longer than this are not searched. Names in libraries are shorter.
