"""Names, codes and bounds that several formats and the model share."""

from __future__ import annotations

import re

ANNOTATION_SCOPE = 7  # `scope` of user annotations (record_function) in an ET
BETWEEN = "(between calls)"  # label of CPU time outside operators and runtime calls
# Below this time in µs, rounding a double gives the correct ns, because half an ulp is under 0.5 ns.
EXACT_US = 2.0**43
MAX_NAME = 2**16  # Maximum number of characters to search in a kernel name. Real names are much shorter.
MAX_NS = 2**62  # Times and their sums stay below this bound (146 years), so int64 cannot overflow.
MAX_DURATION_NS = 2**53  # A record with a longer duration (104 days) is treated as damaged.
MAX_RANKS = 2**31
NS_PER_UNIT = {"ns": 1, "us": 1000, "µs": 1000, "ms": 1_000_000, "s": 1_000_000_000}  # time units for options
# Times above this value (in 2005) are measured from the epoch. Between 2**50 and 2**51 µs, doubles resolve 0.25 µs.
EPOCH_NS = 2**50 * 1000
PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)")  # `torch.profiler` puts this annotation around each step
# Names of the process and thread nodes in an ET. These nodes are not calls.
STRUCTURAL = re.compile(r"\[pytorch\|profiler\|execution_(?:graph|trace)\|(?:process|thread)\]")
CPU_CATEGORIES = frozenset({"cpu_op", "user_annotation"})  # the calls with these Kineto categories are nodes in an ET
# CUDA, ROCm, XPU and PrivateUse1 backends use "kernel". On MTIA, all device work has the category "mtia_ccp_events".
KERNEL_CATEGORIES = frozenset({"kernel", "mtia_ccp_events"})
COPY_CATEGORIES = frozenset({"gpu_memcpy", "gpu_memset"})
# Device activities in Kineto (ActivityType.h), according to `deviceTypeFromActivity` in PyTorch's kineto_shim.cpp.
# Activities that do no work are left out, such as annotations, synchronization and the counters of MTIA.
GPU_CATEGORIES = KERNEL_CATEGORIES | COPY_CATEGORIES
PYTHON_CATEGORY = "python_function"  # most events of a trace with stacks; linking does not need them
# For each user annotation and stream, Kineto writes an event that spans the GPU events launched in the annotation.
GPU_ANNOTATION_CATEGORY = "gpu_user_annotation"
EDGE_KINDS = ("thread", "launch", "stream", "event", "sync", "thread_handoff", "data", "comm", "graph")
# The `etplus` object of an ET+ file has this key and value if the start times were not recorded.
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
UNKNOWN_LAUNCH = (NO_LAUNCHER, LAUNCHED_BEFORE, NO_CPU_CALLS, NO_CORRELATION)  # the launching call is unknown
LONGEST_NAME = 200  # Operator names longer than this are not searched. Names in libraries are shorter.
