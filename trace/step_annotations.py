"""Parse annotations that describe the steps of serving engines, or the step time without the profiler.

- vLLM: `execute_{size}_context_{requests}({sums})_generation_{requests}({sums})`. `{sums}` is `sq…sk…sqsq…sqsk…`. Older
  versions omit the size and write `Σq` or `Σq_Σq²` for the sums.
- SGLang: `step[DECODE bs=32]` or `step[EXTEND bs=15 toks=15360]`. The first word is a value of its `ForwardMode`.
- Graph captures in vLLM and SGLang: `capture_32_DECODE`, `capture_8192_PIECEWISE`, `graph_capture: batch=32 mode=FULL`.
- `etplus record`: `etplus.untraced steps=5 step_ns=812345 host_ns=640000`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

PREFILL, DECODE, MIXED, CAPTURE, IDLE, UNKNOWN_PHASE = "prefill", "decode", "mixed", "capture", "idle", "unknown"
# Phases of serving steps. In an `idle` step, the rank has no requests and only takes part in collectives.
PHASES = (PREFILL, DECODE, MIXED, CAPTURE, IDLE, UNKNOWN_PHASE)

_PART = r"(context|generation)_(\d{1,18})(?:\(([^()]{0,200})\))?"
_EXECUTE = re.compile(rf"execute_(?:(\d{{1,18}})_)?{_PART}(?:_{_PART})?", re.ASCII)
_FIELDS = re.compile(r"(?:[a-z]+\d{1,18})+", re.ASCII)
_FIELD = re.compile(r"([a-z]+)(\d+)", re.ASCII)
_PLAIN_SUMS = re.compile(r"(\d{1,18})(?:_(\d{1,18}))?", re.ASCII)
_STEP = re.compile(r"step\[([A-Z_]{1,40})((?: [a-z_]{1,40}=[^ \]]{1,40}){0,20})\]", re.ASCII)
_MODE = r"([A-Z]+(?:_[A-Z]+)*)"
_CAPTURE = re.compile(rf"capture_(\d{{1,18}})_{_MODE}|graph_capture: batch=(\d{{1,18}}) mode={_MODE}", re.ASCII)
# Unknown versions of serving engines may write `execute_` followed by numbers, or `step` with a mode.
_LIKE_A_STEP = re.compile(r"execute_(?:(\d{1,18})_.*|.*\d.*)|step\[[A-Za-z].*\]", re.ASCII)
_BATCH_SIZE = re.compile(r"\bbs=(\d{1,18})\b", re.ASCII)
_UNTRACED = re.compile(r"etplus\.untraced steps=(\d{1,18}) step_ns=(\d{1,18}) host_ns=(\d{1,18})", re.ASCII)
_MODES = dict.fromkeys(("DECODE", "TARGET_VERIFY", "DRAFT_EXTEND", "DRAFT_EXTEND_V2"), DECODE)
# Maps SGLang's forward modes to phases. Speculative decoding verifies or drafts tokens for requests in decode.
_MODES |= dict.fromkeys(("EXTEND", "PREFILL", "SPLIT_PREFILL"), PREFILL) | {"MIXED": MIXED, "IDLE": IDLE}


class RequestSums(NamedTuple):
    """Sums over the requests in one phase of a step. A sum is None if the annotation does not contain it."""

    requests: int | None = None  # number of requests
    q: int | None = None  # number of new tokens
    k: int | None = None  # number of keys, including the keys of new tokens
    qq: int | None = None  # Σq² summed over the requests
    qk: int | None = None  # Σq·k summed over the requests

    @property
    def pairs(self) -> int | None:
        """Number of query-key pairs in causal attention. The formula is Σq·k − (Σq² − Σq) / 2, because in a request
        with k keys, the i-th of q new tokens (counted from 1) attends to k − q + i keys."""
        if self.q is None or self.qq is None or self.qk is None:
            return None
        return self.qk - (self.qq - self.q) // 2


NO_REQUESTS = RequestSums(0, 0, 0, 0, 0)


class StepBatch(NamedTuple):
    """The work in one step of a serving engine, according to the step's annotation. Unknown values are None."""

    phase: str  # phase of the step, one of `PHASES`
    prefill: RequestSums = RequestSums()  # sums over the requests in prefill
    decode: RequestSums = RequestSums()  # sums over the requests in decode
    requests: int | None = None  # number of requests in both phases
    tokens: int | None = None  # number of new tokens in both phases
    # Number of tokens or sequences that the engine runs or captures. The size exceeds `tokens` if the batch is padded.
    size: int | None = None
    mode: str = ""  # forward mode in SGLang ("DECODE") or mode of a capture ("PIECEWISE"), "" if unknown

    def completed(self, inner: StepBatch) -> StepBatch:
        """Return this batch with unknown values taken from a nested annotation that has the same phase."""
        if UNKNOWN_PHASE in (self.phase, inner.phase):
            return self if inner.phase == UNKNOWN_PHASE else inner
        if inner.phase != self.phase:
            return self
        requests, tokens = _first(self.requests, inner.requests), _first(self.tokens, inner.tokens)
        size = _first(self.size, inner.size)
        prefill = RequestSums(*map(_first, self.prefill, inner.prefill))
        decode = RequestSums(*map(_first, self.decode, inner.decode))
        return StepBatch(self.phase, prefill, decode, requests, tokens, size, self.mode or inner.mode)


def _first(own: int | None, other: int | None) -> int | None:
    return own if own is not None else other


def parse_step(name: str) -> StepBatch | None:
    """Parse a step's annotation. An unknown format has the phase "unknown". Return None for other annotations."""
    if match := _EXECUTE.fullmatch(name):
        return _execute_step(match)
    if match := _STEP.fullmatch(name):
        return _forward_step(match[1], dict(text.split("=", 1) for text in match[2].split()))
    if captured := parse_capture(name):
        return captured
    if match := _LIKE_A_STEP.fullmatch(name):
        return StepBatch(UNKNOWN_PHASE, size=_number(match[1]))
    return None


def parse_capture(name: str) -> StepBatch | None:
    """Parse the annotation around a graph capture. Return None for other annotations."""
    match = _CAPTURE.match(name)
    if match is None:
        return None
    size, mode = match.group(1, 2) if match[1] else match.group(3, 4)
    return StepBatch(CAPTURE, size=int(size), mode=mode)


def batch_size_in(name: str) -> int | None:
    """Return the batch size in the name of a step's annotation, or None for other names."""
    step, match = parse_step(name), _BATCH_SIZE.search(name)
    if step is not None and step.phase != CAPTURE and step.size is not None:
        return step.size
    return int(match[1]) if match else None


def _execute_step(match: re.Match[str]) -> StepBatch:
    parts = {"context": NO_REQUESTS, "generation": NO_REQUESTS}
    for phase, requests, sums in (match.group(2, 3, 4), match.group(5, 6, 7)):
        if phase is not None:
            parts[phase] = _sums(int(requests), sums or "")
    prefill, decode = parts.values()
    phase = (IDLE, DECODE, PREFILL, MIXED)[2 * bool(prefill.requests) + bool(decode.requests)]
    requests, tokens = _sum(prefill.requests, decode.requests), _sum(prefill.q, decode.q)
    size = _number(match[1])
    return StepBatch(phase, prefill, decode, requests, tokens, tokens if size is None else size)


def _sums(requests: int, text: str) -> RequestSums:
    if not requests:
        return NO_REQUESTS
    plain = _PLAIN_SUMS.fullmatch(text)
    if plain:
        given = {"sq": int(plain[1]), "sqsq": _number(plain[2])}
    else:
        given = {key: int(value) for key, value in _FIELD.findall(text)} if _FIELDS.fullmatch(text) else {}
    q, k, qq, qk = (given.get(key) for key in ("sq", "sk", "sqsq", "sqsk"))
    if q == requests:  # each request adds one new token
        qq, qk = q if qq is None else qq, k if qk is None else qk
    return RequestSums(requests, q, k, qq, qk)


def _forward_step(mode: str, fields: dict[str, str]) -> StepBatch:
    requests, tokens = (_number(fields.get(key)) for key in ("bs", "toks"))
    phase = _MODES.get(mode, UNKNOWN_PHASE)
    prefill = decode = RequestSums()
    if phase == PREFILL:
        prefill, decode = RequestSums(requests, tokens), NO_REQUESTS
    elif phase == DECODE:
        tokens = requests if mode == "DECODE" else tokens  # speculative decoding verifies several tokens per request
        prefill, decode = NO_REQUESTS, RequestSums(requests, tokens, qq=requests if mode == "DECODE" else None)
    elif phase == IDLE:
        prefill, decode, requests, tokens = NO_REQUESTS, NO_REQUESTS, 0, 0
    return StepBatch(phase, prefill, decode, requests, tokens, _number(fields.get("bs")), mode)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and text.isascii() else None


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


class UntracedStep(NamedTuple):
    """The step time that `etplus record` measured before it started recording."""

    steps: int  # number of timed steps; the device was idle before and after these steps
    step_ns: int  # mean duration of the steps
    # Median time between the ends of consecutive steps on the host.
    # A slow device increases this time only when the launch queue is full.
    host_ns: int


def untraced_step(names: Iterable[str]) -> UntracedStep | None:
    """Return the untraced step time if one of the names is its annotation. Otherwise, return None."""
    found = next(filter(None, map(_UNTRACED.fullmatch, names)), None)
    return None if found is None else UntracedStep(*map(int, found.groups()))
