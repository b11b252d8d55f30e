"""Findings about serving: decode blocked by prefill, padded batches, graph gaps and slow decode."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, distinct, matching, median
from ...trace.intervals import union
from ...trace.step_annotations import DECODE, MIXED, PREFILL
from ...trace.text_tables import in_ms
from ...trace.trace import Trace
from ..serving_steps import ServingStep
from .case import Case
from .finding import CONFIRMED, INFERRED, PREDICTED, Candidate, Evidence, Intervention
from .proofs import where_of

WAITS = 0.1  # minimum time that decode waits for prefill, as a share of the decode time; up to a tenth is normal
FIRST_KERNEL = 0.15  # minimum share of the step time before the first kernel, per step and in total; usually 1 or 2%
# Minimum share of padding among the tokens of padded steps.
# Captured sizes grow by 8, so large batches always contain a few padding tokens.
PADDED = 0.1
# In steps with graphs: minimum idle share of the time from the first to the last GPU event.
# If an engine prepares the next step while the device works, the idle share stays lower.
GAPS = 0.1
KNOWN = 0.8  # the roofline is meaningful only if bounds are known for at least this share of the decode GPU time
FAR = 0.4  # Decode below this share of the roofline is slow. Paged attention and small kernels never reach the peak.
REACHED = 0.7  # With large batches, tuned decode reaches this share of the roofline; the replay scales kernels to it.
_GRAPH_LAUNCH = re.compile("GraphLaunch")
_MOST_STEPS = 20  # maximum number of steps to replay, longest first; other steps do not contribute to the gain


class PrefillBlocksDecode:
    """Decode steps that wait for prefill, either between steps or in the same step."""

    id = "prefill-blocks-decode"

    def find(self, case: Case) -> Iterator[Candidate]:
        steps = case.analysis.serving_steps
        decode = [step for step in steps if step.phase == DECODE]
        if not decode:
            return
        usual = median([step.time_ns for step in decode])
        between = [
            step
            for k, step in enumerate(steps)
            if step.phase == PREFILL and _decodes(steps[:k][-1:]) and _decodes(steps[k + 1 :][:1], steps[k + 1 :])
        ]
        mixed = [step for step in steps if step.phase == MIXED and step.time_ns > usual]
        decoding = sum(step.time_ns for step in decode) + usual * len(mixed)
        waited = sum(step.time_ns for step in between) + sum(step.time_ns - usual for step in mixed)
        if waited < WAITS * decoding:
            return
        trace, file = case.trace, case.shell()
        tokens = len(decode) + len(mixed)
        rows = _rows(trace, [*between, *mixed])
        waits = (
            f"{len(between):,} prefill steps between decode steps take "
            f"{in_ms(sum(step.time_ns for step in between))}; {len(mixed):,} mixed steps take "
            f"{in_ms(sum(step.time_ns for step in mixed))}; a pure decode step takes {in_ms(usual)}"
        )
        alone = f"median duration of {len(decode):,} decode steps: {in_ms(usual)}"
        yield Candidate(
            self.id,
            f"prefill delays decode by {in_ms(waited)} in {len(between) + len(mixed):,} steps: a request in "
            f"decode gets a token every {in_ms((decoding + waited) / tokens)} on average, {in_ms(decoding / tokens)} "
            "without prefill",
            where_of(trace, rows, phase="prefill"),
            (
                Evidence(waits, round(waited), "ns", f"etplus analyze {file}"),
                Evidence(alone, round(usual), "ns", f"etplus analyze {file} --steps decode"),
            ),
            round(waited),
            CONFIRMED,
            "split prefill into smaller pieces that run next to decode (chunked prefill: vLLM "
            "--max-num-batched-tokens, SGLang --chunked-prefill-size), or run it on a different device (disaggregated "
            "prefill). The prefill work remains; the gain is for requests in decode",
            "the serving table of `etplus analyze` shows a time per output token close to that of pure decode",
            (
                *_without(between),
                *(Intervention(f"step={step.step} kernel*{usual / step.time_ns:.4g}") for step in _longest(mixed)),
            ),
            low=0.7,
            high=1.2,
        )  # fmt: skip


class WaitsForFirstKernel:
    """Serving steps that leave the device idle for a long time before their first kernel."""

    id = "waits-for-first-kernel"

    def find(self, case: Case) -> Iterator[Candidate]:
        trace, busy = case.trace, union(case.trace.gpu.ts, case.trace.gpu.end)
        late: list[tuple[ServingStep, int, int]] = []
        total = 0
        for step in case.analysis.serving_steps:
            events = _events(trace, [step])
            if not events.any():
                continue
            total += step.time_ns
            first = int(trace.gpu.ts[events].min())
            at = int(np.searchsorted(busy.start, first, side="right")) - 1
            begin = max(step.start_ns, int(busy.end[at - 1]) if at else step.start_ns)
            if busy.start[at] < first:  # the device is still busy with an earlier step
                continue
            if first - begin >= FIRST_KERNEL * step.time_ns:
                late.append((step, begin, first))
        waited = sum(first - begin for _, begin, first in late)
        if not late or waited < FIRST_KERNEL * total:
            return
        steps = [step for step, _, _ in late]
        latency = sum(step.latency_ns for step in steps)
        origin = trace.nodes.span.start
        longest = sorted(late, key=lambda each: each[1] - each[2])[:_MOST_STEPS]
        text = f"idle time from the start of {len(late):,} steps to their first GPU event"
        yield Candidate(
            self.id,
            f"{len(late):,} serving steps wait {in_ms(waited)} of {in_ms(latency)} for their first kernel while the "
            "device is idle",
            where_of(trace, _rows(trace, steps)),
            (Evidence(text, waited, "ns", f"etplus analyze {case.shell()}"),),
            waited,
            CONFIRMED,
            "prepare the next step during the current step (vLLM --async-scheduling, SGLang overlap schedule); "
            "throughput measured between GPU events does not include this time",
            "in `etplus report`, each step starts with its first GPU event",
            tuple(Intervention(f"window={begin - origin}ns-{end - origin}ns cpu*0") for _, begin, end in longest),
            low=0.5,
        )  # fmt: skip


class PaddedBatches:
    """Steps that run a captured size larger than their batch."""

    id = "padded-batches"

    def find(self, case: Case) -> Iterator[Candidate]:
        for phase in (DECODE, MIXED, PREFILL):
            steps = [step for step in case.analysis.serving_steps if step.phase == phase and step.size and step.tokens]
            padded = [step for step in steps if (step.size or 0) > (step.tokens or 0)]
            size, tokens = (sum(getattr(step, name) for step in padded) for name in ("size", "tokens"))
            if not padded or size - tokens < PADDED * size:
                continue
            slope = _ns_a_token(steps)
            device = sum(step.device_ns for step in padded)
            lost = device * (size - tokens) / size if slope is None else slope * (size - tokens)
            trace, file = case.trace, case.shell()
            at = _events(trace, padded) & (trace.gpu.source >= 0)
            rows = trace.gpu.source[at]
            known = "" if slope is not None else " at most (all steps have the same size)"
            text = f"{len(padded):,} of {len(steps):,} {phase} steps are padded to a captured size; the device works "
            text += f"{in_ms(device)} for them"
            evidence = [Evidence(text, device, "ns", f"etplus analyze {file} --steps {phase}")]
            if slope is not None:
                text = f"one more token takes {slope / 1e3:,.3f} µs (linear fit over steps of different sizes)"
                evidence.append(Evidence(text, round(slope), "ns", f"etplus analyze {file} --json -"))
            yield Candidate(
                self.id,
                f"{len(padded):,} {phase} steps run {size:,} tokens instead of {tokens:,}: {1 - tokens / size:.0%} is "
                f"padding, which costs {in_ms(lost)}{known}",
                where_of(trace, rows, phase=phase),
                tuple(evidence),
                round(lost),
                PREDICTED if slope is None else INFERRED,
                "capture more sizes close to the actual batch sizes (vLLM cudagraph_capture_sizes, SGLang "
                "--cuda-graph-bs), or let the scheduler fill batches up to a captured size",
                "steps have fewer padding tokens: the size in the annotation equals the batch size",
                (Intervention(f"kernel*{max(1 - lost / max(device, 1), 0):.4g}", rows),),
                low=0.0 if slope is None else 0.7,
                high=1.0 if slope is None else 1.3,
            )  # fmt: skip


class GraphGaps:
    """Idle time of the device between replayed CUDA graphs."""

    id = "graph-gaps"

    def find(self, case: Case) -> Iterator[Candidate]:
        trace, steps = case.trace, case.analysis.serving_steps
        gpu, runtime = trace.gpu, trace.runtime
        graphs = matching(runtime.name, trace.names, _GRAPH_LAUNCH.search)
        replayed = np.append(graphs, False)[gpu.runtime] & (trace.step_of_event >= 0)
        with_graphs = [step for step in steps if np.any(replayed & _events(trace, [step]))]
        launches = len(distinct(gpu.runtime[replayed]))
        if launches < _FEWEST_GRAPHS or not with_graphs:
            return
        mine = _events(trace, with_graphs)
        busy = union(gpu.ts, gpu.end)
        first, last = int(gpu.ts[mine].min()), int(gpu.end[mine].max())
        inside = (busy.start >= first) & (busy.end <= last)
        idle = last - first - int((busy.end - busy.start)[inside].sum())
        if idle < GAPS * (last - first):
            return
        gaps = busy.start[inside][1:] - busy.end[inside][:-1]
        command, before = f"etplus analyze {case.shell()}", sum(step.host_before_ns or 0 for step in with_graphs[1:])
        text = f"{in_ms(last - first)} from the first to the last device event of these steps, {in_ms(idle)} idle"
        between = f"the host takes {in_ms(before)} between the steps (scheduling, sampling, responses)"
        yield Candidate(
            self.id,
            f"the device is idle for {in_ms(idle)}, {idle / (last - first):.0%} of the time, between the {launches:,} "
            f"graphs of {len(with_graphs):,} steps; the longest gap is {in_ms(int(gaps.max(initial=0)))}",
            where_of(trace, gpu.source[mine & (gpu.source >= 0)], start_ns=first - trace.nodes.span.start,
                     end_ns=last - trace.nodes.span.start, kernel=None),
            (Evidence(text, idle, "ns", command), Evidence(between, before, "ns", command)),
            idle,
            CONFIRMED,
            "prepare the next step during the current step (vLLM --async-scheduling, SGLang overlap schedule), "
            "sample on the device, and capture the whole step as one graph (vLLM cudagraph_mode=FULL)",
            "the idle time of steps in the serving table of `etplus analyze` falls",
            (Intervention("cpu*0"),),
            low=0.5,
            high=1.0,
        )  # fmt: skip


_FEWEST_GRAPHS = 2  # A gap is the time between two graphs.


class DecodeFarFromPeak:
    """Decode kernels that are much slower than the device peaks allow for their bytes and FLOPs."""

    id = "decode-roofline"

    def find(self, case: Case) -> Iterator[Candidate]:
        analysis = case.analysis
        trace, steps = analysis.trace, [step for step in analysis.serving_steps if step.phase == DECODE]
        if not steps:
            return
        mine, bound = _events(trace, steps), case.bounds
        known = mine & (bound >= 0)
        device, told = int(trace.gpu.dur[mine].sum()), int(trace.gpu.dur[known].sum())
        least = int(bound[known].sum())
        if told < KNOWN * device or least >= FAR * told or not told:
            return
        share, rows = least / told, trace.gpu.source[known & (trace.gpu.source >= 0)]
        time = sum(step.time_ns for step in steps)
        tokens = sum(step.tokens or 0 for step in steps)
        rate = tokens / time * 1e9 if tokens else 0.0
        at_peak = tokens / max(time - told + least, 1) * 1e9
        speed = f"{rate:,.0f} tokens/s, {at_peak:,.0f} at the roofline" if tokens else "tokens are not recorded"
        text = f"kernels that take {in_ms(told)} ({told / max(device, 1):.0%} of decode device time) would take "
        text += f"{in_ms(least)} at the device peaks"
        yield Candidate(
            self.id,
            f"decode reaches {share:.0%} of its roofline: {speed}",
            where_of(case.trace, rows, phase=DECODE),
            (Evidence(text, least, "ns", f"etplus analyze {case.shell()} --steps decode"),),
            told - least,
            INFERRED,
            "decode more requests per step if memory and latency allow (--max-num-seqs), because each step "
            "reads the weights once; quantize weights and cache; use a faster attention backend "
            "(FlashInfer, FlashAttention 3)",
            "decode tokens/s rise, and decode kernels reach a larger share of the peak",
            (Intervention(f"kernel*{min(share / REACHED, 1):.4g}", rows),),
            low=0.3,
            high=REACHED and (1 - share) / (1 - share / REACHED) if share < REACHED else 1.0,
        )  # fmt: skip


def _decodes(steps: Sequence[ServingStep], after: Sequence[ServingStep] = ()) -> bool:
    following = [step for step in after if step.phase != PREFILL][:1] or list(steps)
    return any((step.decode_requests or 0) > 0 for step in following)


def _ns_a_token(steps: Sequence[ServingStep]) -> float | None:
    size = np.array([step.size for step in steps], np.float64)
    if len(set(size.tolist())) < 2:
        return None
    slope = float(np.polyfit(size, np.array([step.device_ns for step in steps], np.float64), 1)[0])
    return max(slope, 0.0)


def _numbers(trace: Trace, steps: Sequence[ServingStep]) -> IntColumn:
    names = {name: k for k, name in enumerate(trace.steps.names)}
    return np.array([names[step.step] for step in steps], np.int64)


def _events(trace: Trace, steps: Sequence[ServingStep]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.isin(trace.step_of_event, _numbers(trace, steps))
    return found


def _rows(trace: Trace, steps: Sequence[ServingStep]) -> IntColumn:
    numbers = _numbers(trace, steps)
    runtime = trace.steps.of(trace.runtime.ts, trace.runtime.thread)
    rows = np.concatenate([
        trace.calls.source[np.isin(trace.step_of_call, numbers)],
        trace.runtime.source[np.isin(runtime, numbers)],
        trace.gpu.source[_events(trace, steps)],
    ])  # fmt: skip
    return rows[rows >= 0]


def _longest(steps: Sequence[ServingStep]) -> list[ServingStep]:
    return sorted(steps, key=lambda step: -step.time_ns)[:_MOST_STEPS]


def _without(steps: Sequence[ServingStep]) -> Iterator[Intervention]:
    for step in _longest(steps):
        yield Intervention(f"step={step.step} remove gpu")
        yield Intervention(f"step={step.step} cpu*0")
