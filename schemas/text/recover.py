"""Read trace files tolerantly. If strict reading fails, recover a valid JSON document and count the losses.

The array is cut at the start of records, because the layout shows these places even if strings or brackets are broken.
Valid blocks are copied, and `repair` fixes the records of invalid blocks one by one.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeVar

import msgspec
import orjson

from ...trace.errors import UNREADABLE, TraceFormatError
from .files import Blob, progress_bar
from .gc_control import gc_disabled
from .parallel import parallel_map
from .records import Block, RecordArray, opening
from .repair import EVENT, FREE, MAX_KEY, NODE, Flaw, is_valid, repair
from .sniff import HEAD, is_chakra, is_pftrace, is_sqlite
from .text import Text

T = TypeVar("T")

# Maps each kind of `Loss` to its meaning. The last four kinds lose data, while the other kinds only change text.
LOSS_KINDS: Mapping[str, str] = {
    "unescaped_quote": "a quote inside a string, now escaped",
    "control_character": "a raw control character inside a string, now escaped",
    "backslash": "a backslash that begins no escape sequence in a string, now escaped",
    "not_utf8": "bytes that are not UTF-8, now U+FFFD",
    "bare_number": "inf, nan or another bare word where a value belongs, now null",
    "missing_value": "a key without a value, now null",
    "missing_comma": "no comma between two values or records, now inserted",
    "extra_comma": "a comma without a value before or after it, now removed",
    "unbalanced_bracket": "a bracket that is closed twice or not at all, now balanced",
    "caller_circle": "a node that is its own caller, directly or through other nodes, now below its thread",
    "garbage": "text between records that is not a record, left out",
    "trailing_data": "text after the end of the document, such as a second document, left out",
    "header": "a header that cannot be read; only simple fields were kept",
    "dropped_record": "a record that could not be saved; an empty record keeps its place in traceEvents",
    "truncated": "the file is cut off; an unknown number of records is missing",
}

_LAYOUTS = {"nodes": NODE, "traceEvents": EVENT}
_BLOCK = _SAMPLE = 1 << 20
_MAX_HEADER = 1 << 24
_CLOSERS_TRIED = 64
_EXAMPLE = 60
_WHITE = b" \t\r\n"
_GAP = re.compile(rb"[\s,\]}]*")
_CONTENT = re.compile(rb"[^\s\x00]")
_HEADER_FIELD = re.compile(rb'"(?:finish_ts|traceName|displayTimeUnit|baseTimeNanoseconds|schema(?:Version)?)"\s*:')
_SIMPLE_FIELD = re.compile(
    rb'"(?:schema|pid|time|start_ts|finish_ts|schemaVersion|displayTimeUnit|baseTimeNanoseconds|trace_id|host_name)"'
    rb'\s*:\s*(?:"[^"\\\x00-\x1f\x80-\xff]*"|(?:0|[1-9]\d{0,18}))(?=\s*[,}])'
)


@dataclass(frozen=True)
class Loss:
    kind: str  # a key of `LOSS_KINDS`
    count: int
    first_offset: int  # byte offset of the first loss; −1 if unknown
    example: str

    def __str__(self) -> str:
        if self.kind == "truncated" and self.first_offset >= 0:
            stream = f" of the {self.example}" if self.example else ""
            return LOSS_KINDS[self.kind].replace("cut off", f"cut off at byte {self.first_offset:,}{stream}")
        where = f", first at byte {self.first_offset}" if self.first_offset >= 0 else ""
        shown = f": {self.example!r}" if self.example else ""
        return f"{self.count} × {self.kind} ({LOSS_KINDS[self.kind]}){where}{shown}"


class Recovered(NamedTuple):
    data: bytes  # JSON; lost records are removed from `nodes`, but become "{}" in `traceEvents` to keep positions
    losses: tuple[Loss, ...]  # one entry per kind of loss; () if the file was valid


def damage_of(*traces: Any) -> tuple[str, ...]:
    """Return a sentence for each loss in the traces, with the name of the file. ET+ files store these sentences."""
    return tuple(f"{PurePath(trace.file).name} is broken: {loss}" for trace in traces for loss in trace.losses)


def recover(data: bytes, records_key: str, name: str = "<bytes>") -> Recovered:
    """Turn a broken document into a valid one, in linear time and with twice the document's memory."""
    begin, body = max(data.find(b"{"), 0), None
    try:
        body = begin + opening(data[begin:], records_key)
    except UNREADABLE:
        if found := _array(data, records_key):
            body = found.end()
    if body is None:
        fault = 0
        try:
            msgspec.json.Decoder(msgspec.Raw).decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            offset = _OFFSET.search(str(error))
            fault = int(offset[1]) if offset else len(data)
        cut_off = f'the file is cut off before its "{records_key}" array'
        problem = cut_off if fault == len(data) else f'no "{records_key}" array was found'
        raise TraceFormatError(name, f"byte {fault}", problem, "give the file that the profiler wrote")
    salvage = _Salvage(data, records_key)
    salvage.run(body)
    losses = salvage.losses()
    return Recovered(salvage.document(), losses) if losses else Recovered(data, ())


class _Salvage:
    def __init__(self, data: bytes, key: str) -> None:
        self.data, self.key = data, key
        self.layout = _LAYOUTS[key]
        self._head = b""
        self._pieces: list[bytes | memoryview] = []
        self._tail = b"]}"
        self._losses: dict[str, Loss] = {}
        self._view = memoryview(data)
        self._start = re.compile(rb"(?!)()")
        self._no_start_from = sys.maxsize
        self._body = 0

    def document(self) -> bytes:
        text: list[bytes | memoryview] = [self._head]
        for piece in self._pieces:
            text += (piece, b",\n")
        if self._pieces:
            text.pop()
        return b"".join([*text, self._tail])

    def losses(self) -> tuple[Loss, ...]:
        return tuple(self._losses.values())

    def run(self, body: int) -> None:
        self._body = body
        self._read_head(body)
        self._learn_layout(body)
        at = self._next_record(body, first=True)
        while at is not None:
            stop = self._next_start(at + _BLOCK)
            if stop is not None and self._take(at, stop):
                at = stop
                continue
            while at is not None and (stop is None or at < stop):  # The records of the block are repaired one by one.
                after = self._next_start(at + 1)
                at = after if after is not None and self._take(at, after) else self._broken(at, after)

    def _log(self, kind: str, offset: int, example: str | None = None) -> None:
        old = self._losses.get(kind)
        if old:
            self._losses[kind] = replace(old, count=old.count + 1)
            return
        if example is None:
            example = self.data[offset : offset + _EXAMPLE].decode("utf-8", "replace")
        self._losses[kind] = Loss(kind, 1, offset, example)

    def _log_flaws(self, flaws: tuple[Flaw, ...], shift: int = 0) -> None:
        for flaw in flaws:
            self._log(flaw.kind, flaw.offset + shift, flaw.example)

    def _read_head(self, opening: int) -> None:
        begin = max(self.data.find(b"{", 0, opening), 0)
        head = self.data[begin:opening]
        repaired = repair(head + b"]}", 0, len(head) + 2, FREE)
        if repaired and orjson.loads(repaired.text).get(self.key) == []:
            self._log_flaws(repaired.flaws, begin)
            self._head = repaired.text[: repaired.text.rindex(b"]")]
        else:
            self._log("header", begin)
            self._head = b'{%b"%b":[' % (_simple_fields(head), self.key.encode())

    def _learn_layout(self, opening: int) -> None:
        # Do not match values (objects after a colon) or attributes of nodes (objects that contain "type").
        form = rb'%b\s*(\{(%b)"%b"\s*:(?!\s*"[^"]*"\s*,\s*"type"))'
        for keys in self.layout.any_key, FREE.any_key:
            any_start = re.compile(form % (rb"[^:\s]", rb"\s*", keys))
            spaces = [found.group(2) for found in any_start.finditer(self.data, opening - 1, opening + _SAMPLE)]
            if not spaces:
                continue
            space = Counter(spaces).most_common(1)[0][0]
            # Records on one line must follow a comma or bracket, because JSON in a string may look like a record.
            before = rb"[^:\s]" if b"\n" in space else rb"[}\],\[]"
            self._start = re.compile(form % (before, re.escape(space), keys))
            return

    def _next_start(self, at: int, end: int | None = None) -> int | None:
        if at >= self._no_start_from:
            return None
        found = self._start.search(self.data, at, len(self.data) if end is None else end)
        if found is None and end is None:
            self._no_start_from = at
        return found.start(1) if found else None

    def _take(self, begin: int, end: int) -> bool:
        text = self.data[begin:end].rstrip(_WHITE)
        if not text.endswith(b",") or not is_valid(text[:-1]):
            return False
        self._pieces.append(self._view[begin : begin + len(text) - 1])
        return True

    def _broken(self, at: int, after: int | None) -> int | None:
        limit = len(self.data) if after is None else after
        repaired = repair(self.data, at, limit, self.layout)
        if after is None and (repaired is None or repaired.flaws):
            closer = self._closing_bracket(at)
            if closer is not None:
                limit = closer
                repaired = repair(self.data, at, closer, self.layout) or repaired
        if repaired and (not repaired.flaws or after is None or _GAP.fullmatch(self.data, repaired.end, after)):
            self._log_flaws(repaired.flaws)
            self._pieces.append(repaired.text if repaired.flaws else self._view[at : repaired.end])
            if repaired.end != after:
                return self._next_record(repaired.end)
            if not repaired.flaws:
                self._log("missing_comma", after)
            return after
        if limit == len(self.data):
            self._log("dropped_record", at)
            self._log("truncated", limit, "")
            return None
        self._drop(at)
        if after is None:
            self._finish(limit, limit + 1)
        return after

    def _drop(self, at: int) -> None:
        self._log("dropped_record", at)
        if self.key == "traceEvents":
            self._pieces.append(b"{}")

    def _next_record(self, at: int, *, first: bool = False) -> int | None:
        """Move from the end of a record to the next record; return None at the end of the array."""
        gap = _GAP.match(self.data, at)
        after = gap.end() if gap else at
        marks = self.data[at:after].translate(None, _WHITE)
        closer = self.data.find(b"]", at, after)
        begins = self._next_start(at - 1, after + 2 * MAX_KEY) == after or (
            marks == (b"" if first else b",") and self.data.startswith(b"{", after)
        )
        if closer >= 0 and not begins:
            if b"," in self.data[at:closer]:
                self._log("extra_comma", at)
            if b"}" in self.data[at:closer]:
                self._log("unbalanced_bracket", at)
            self._finish(closer, closer + 1)
            return None
        if after == len(self.data):
            self._log("unbalanced_bracket" if b"}" in marks else "truncated", after, "")
            return None
        if marks.strip(b","):
            self._log("unbalanced_bracket", at)
        if not begins:
            return self._skip_garbage(after, b"," in marks)
        commas = marks.count(b",")
        if commas == 0 and not first:
            self._log("missing_comma", at)
        elif commas > (not first):
            self._log("extra_comma", at)
        return after

    def _skip_garbage(self, at: int, comma: bool) -> int | None:
        after = self._next_start(at)
        if after is None:
            closer = self._closing_bracket(at)
            if closer is not None or (comma and self.data[at] == ord('"')):
                self._log("unbalanced_bracket" if closer is None else "garbage", at)
                self._finish(at, at if closer is None else closer + 1)
            else:
                self._log("truncated", at)
            return None
        for _ in range(self._records_in(at, after)):
            self._drop(at)
        return after

    def _records_in(self, at: int, after: int) -> int:
        text = self.data[at:after].rstrip(_WHITE).removesuffix(b",")
        try:
            return len(orjson.loads(b"[" + text + b"]"))  # The values are not objects.
        except orjson.JSONDecodeError:
            if re.compile(rb'"%b"\s*:|\x00{4}' % self.layout.any_key).search(text):
                return 1
        self._log("garbage", at)
        return 0

    def _closing_bracket(self, at: int) -> int | None:
        """Return the first "]" at or after `at` that is followed by a valid end of the document."""
        return next((closer for closer in self._closers if closer >= at), None)

    @cached_property
    def _closers(self) -> list[int]:
        end, closers = len(self.data), list[int]()
        for _ in range(_CLOSERS_TRIED):
            end = self.data.rfind(b"]", self._body, end)
            if end < 0 or len(self.data) - end > _MAX_HEADER:
                break
            before = end - 1
            while self.data[before] in _WHITE:
                before -= 1
            likely = self.data[before] in b"}[" or _HEADER_FIELD.search(self.data, end)
            if likely and is_valid(b'{"":[' + self.data[end:]):
                closers.insert(0, end)
        return closers

    def _finish(self, closer: int, at: int) -> None:
        dummy = b'{"":0' if at > closer else b'{"":0,'
        text = dummy + self.data[at : at + _MAX_HEADER]
        repaired = repair(text, 0, len(text), FREE)
        if not repaired:
            self._log("truncated", len(self.data), "")
            fields = _simple_fields(text)
            self._tail = b"]" + (b"," + fields[:-1] if fields else b"") + b"}"
            return
        self._log_flaws(repaired.flaws, at - len(dummy))
        self._tail = b"]" + repaired.text[len(b'{"":0') :]
        rest = _CONTENT.search(self.data, at - len(dummy) + repaired.end)
        if rest:
            self._log("trailing_data", rest.start())


def _simple_fields(text: bytes) -> bytes:
    return b"".join(found.group() + b"," for found in _SIMPLE_FIELD.finditer(text, 0, _SAMPLE))


# Maximum and minimum size of a part in bytes, and the minimum number of parts of a large document.
_PART, _LEAST_PART, _FEWEST = 4 << 20, 1 << 20, 8
_WORTH_A_PROCESS = 4 << 20  # For fewer bytes, starting a process costs more time than it saves.
_KINDS = {"nodes": ("an Execution Trace", "--et-file"), "traceEvents": ("a Kineto trace", "--kineto-file")}
_AS_TIMELINE = "give it as --kineto-file"
_BINARY = (
    (is_chakra, "a Chakra trace", "give the Execution Trace that PyTorch wrote as JSON"),
    (is_sqlite, "a SQLite database", _AS_TIMELINE),
    (is_pftrace, "a Perfetto trace", _AS_TIMELINE),
)
_OFFSET = re.compile(r" ?\(byte (\d+)\)")


@dataclass(frozen=True)
class Document:
    name: str
    text: Text
    lenient: bool = False  # If True, readers add errors of records to `dropped` instead of raising the first error.
    losses: tuple[Loss, ...] = ()  # the losses that were found so far
    progress: bool = False
    dropped: list[str] = field(default_factory=list)  # errors of the records that a lenient reader dropped

    def parts(self, array: RecordArray, read: Callable[[Iterator[Block]], T]) -> Iterator[T]:
        size = array.end - array.start
        spans = list(array.blocks(size=min(max(size // _FEWEST, _LEAST_PART), _PART)))
        with (
            progress_bar(size, f"parse {Path(self.name).name}", self.progress) as bar,
            parallel_map(lambda i: read(array.arrays(spans[i])), len(spans), most=size // _WORTH_A_PROCESS) as made,
        ):
            for (begin, end), part in zip(spans, made, strict=True):
                yield part
                bar.update(end - begin)

    def all_losses(self) -> tuple[Loss, ...]:
        if not self.dropped:
            return self.losses
        return (*self.losses, Loss("dropped_record", len(self.dropped), -1, self.dropped[0]))


@gc_disabled()
def read_tolerantly(
    blob: Blob[Text], key: str, read: Callable[[Document], T], *, strict: bool, progress: bool = False
) -> T:
    """Run a reader on a file without recovery; after an error in UNREADABLE, run the reader on the recovered text."""
    expected = _KINDS[key][0]
    losses: tuple[Loss, ...] = ()
    if blob.broken_at is not None:
        if strict:
            problem = "the gzip stream is damaged or cut off"
            place = f"compressed byte {blob.broken_at}"
            raise TraceFormatError(blob.name, place, problem, "drop --strict to recover the rest")
        losses = (Loss("truncated", 1, blob.broken_at, "gzip stream"),)
    try:
        return read(Document(blob.name, blob.data, losses=losses, progress=progress))
    except UNREADABLE as error:
        data = blob.data[:]
        _refuse_other_kind(blob.name, data, key)
        if strict:
            raise _not_readable(blob.name, error, expected, "drop --strict to recover what can be read") from None
    recovered = recover(data, key, blob.name)
    try:
        return read(Document(blob.name, recovered.data, True, losses + recovered.losses))
    except UNREADABLE as error:
        raise _not_readable(blob.name, error, expected, "record it again") from None


def _refuse_other_kind(name: str, data: bytes, key: str) -> None:
    expected, option = _KINDS[key]
    for is_kind, what, belongs in _BINARY:
        if is_kind(data[:HEAD]):
            remedy = belongs if option != "--kineto-file" else f"give the Kineto trace as {option}"
            raise TraceFormatError(name, "", f"this is {what}, not {expected}", remedy)
    if _array(data, key):
        return
    for other, (what, place) in _KINDS.items():
        if other != key and _array(data, other):
            raise TraceFormatError(name, "", f"this is {what}, not {expected}", f"give it as {place}")


def _array(data: bytes, key: str) -> re.Match[bytes] | None:
    return re.search(rb'"%b"\s*:\s*\[' % key.encode(), data)


def _not_readable(name: str, error: Exception, expected: str, remedy: str) -> TraceFormatError:
    text = str(error)
    offset = _OFFSET.search(text)
    place = f"byte {offset[1]}" if offset else ""
    return TraceFormatError(name, place, f"not {expected} that can be read: {_OFFSET.sub('', text)}", remedy)
