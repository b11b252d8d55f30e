"""Generate a large pair that looks like a longer run. The large pair repeats the calls of a small pair with later times
and new ids.

    python benchmarks/repeat_pair.py ET KINETO TIMES FOLDER

Writes FOLDER/et.json and FOLDER/kineto.json. Every copy has its own times, node ids, record function ids, sequence
numbers, correlation ids and step numbers, so the large pair links like the original. The JSON keeps the layout of the
original, because the speed of a reader depends on it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from etplus.schemas.execution_trace.read_et import ExecutionTrace, read_execution_trace
from etplus.schemas.kineto.read_kineto import KinetoTrace, read_kineto
from etplus.schemas.text.files import load
from etplus.schemas.text.records import RecordArray, locate

__all__ = ["repeat_pair"]

_EVENT_KEYS = re.compile(
    rb'"(ts|id|correlation|External id|Ev Idx|Record function id|Sequence number|wait_on_cuda_event_record_corr_id)"'
    rb'(\s*:\s*)(\d+)|"ProfilerStep#(\d+)"'
)
_NODE_KEYS = re.compile(
    rb'"(id|parent|ctrl_deps|fw_parent|rf_id|seq_id)"(\s*:\s*)(\d+)|'
    rb'("name"\s*:\s*"(rf_id|seq_id|fw_parent)"[^{}]*?"value"\s*:\s*)(\d+)|"ProfilerStep#(\d+)"'
)
_NUMBER_IN = {
    "External id": re.compile(rb'"(?:External id|correlation|id)"\s*:\s*(\d+)'),
    "Ev Idx": re.compile(rb'"Ev Idx"\s*:\s*(\d+)'),
}
_FINISH = re.compile(rb'("finish_ts"\s*:\s*)(\d+)')
_PAUSE_US = 100


def repeat_pair(et: Path, kineto: Path, times: int, folder: Path) -> tuple[Path, Path]:
    """Write the repeated pair. Return the paths of its two files."""
    folder.mkdir(parents=True, exist_ok=True)
    et_trace, kineto_trace = read_execution_trace(et), read_kineto(kineto)
    steps = _steps(et_trace, kineto_trace, load(kineto).data)
    targets = folder / "et.json", folder / "kineto.json"
    longer_ms = -(-(times - 1) * steps["ts"] // 1000)
    _write(targets[0], load(et).data, "nodes", times, _node_mover(et_trace, steps), b"[pytorch|profiler|", longer_ms)
    _write(targets[1], load(kineto).data, "traceEvents", times, _event_mover(steps), b'"ph": "M"', longer_ms)
    return targets


def _steps(et: ExecutionTrace, kineto: KinetoTrace, text: bytes) -> dict[str, int]:
    """Return how much each kind of number increases from one copy to the next."""
    events = kineto.events
    largest = {key: max(map(int, pattern.findall(text)), default=0) for key, pattern in _NUMBER_IN.items()}
    timeless = {code for code, name in enumerate(events.categories) if name == "Trace"}
    timed = [i for i, code in enumerate(events.category.tolist()) if code not in timeless]
    span = int(events.end[timed].max() - events.ts[timed].min())
    return {
        "ts": span // 1000 + _PAUSE_US,
        "id": 1 + largest["External id"],
        "Ev Idx": 1 + largest["Ev Idx"],
        "rf_id": 1 + max(int(et.rf_id.max()), int(events.rf_id.max())),
        "seq_id": 1 + max(int(et.seq_id.max()), int(events.seq.max())),
        "node": int(et.id.max()),
        "ProfilerStep": sum(name.startswith("ProfilerStep#") for name in events.names),
    }


def _event_mover(steps: dict[str, int]) -> Callable[[bytes, int], bytes]:
    by = {
        b"ts": steps["ts"], b"id": steps["id"], b"correlation": steps["id"], b"External id": steps["id"],
        b"wait_on_cuda_event_record_corr_id": steps["id"], b"Ev Idx": steps["Ev Idx"],
        b"Record function id": steps["rf_id"], b"Sequence number": steps["seq_id"],
    }  # fmt: skip

    def move(text: bytes, copy: int) -> bytes:
        def moved(found: re.Match[bytes]) -> bytes:
            key, colon, number, step = found.groups()
            if step:
                return b'"ProfilerStep#%d"' % (int(step) + copy * steps["ProfilerStep"])
            none = number == b"0" and key not in (b"ts", b"Sequence number", b"Ev Idx")
            return found.group() if none else b'"%b"%b%d' % (key, colon, int(number) + copy * by[key])

        return _EVENT_KEYS.sub(moved, text)

    return move


def _node_mover(et: ExecutionTrace, steps: dict[str, int]) -> Callable[[bytes, int], bytes]:
    roots = set(et.id[et.structural].tolist())
    by = {b"rf_id": steps["rf_id"], b"seq_id": steps["seq_id"]}

    def move(text: bytes, copy: int) -> bytes:
        def moved(found: re.Match[bytes]) -> bytes:
            key, colon, number, head, attribute, value, step = found.groups()
            if step:
                return b'"ProfilerStep#%d"' % (int(step) + copy * steps["ProfilerStep"])
            name, old = (key, int(number)) if key else (attribute, int(value))
            stays = name != b"seq_id" and (old == 0 or (name not in by and old in roots))
            new = old if stays else old + copy * by.get(name, steps["node"])
            return b'"%b"%b%d' % (key, colon, new) if key else head + b"%d" % new

        return _NODE_KEYS.sub(moved, text)

    return move


def _write(
    path: Path, data: bytes, key: str, times: int, move: Callable[[bytes, int], bytes], once: bytes, longer_ms: int
) -> None:
    """Write a JSON document in which the records of the array `key` are repeated. A record that contains `once` is not
    repeated."""
    array = locate(data, key)
    if array is None:
        raise SystemExit(f"{path.name}: this script does not support the layout of the file")
    counted = [
        (begin, end, len(msgspec.json.decode(block, type=list[msgspec.Raw]))) for begin, end, block in array.arrays()
    ]
    records = array.texts(counted).of(np.arange(sum(count for _, _, count in counted)))
    comma = _between(array)
    with path.open("wb") as file:
        file.write(data[: array.start] + comma.join(records))
        repeated = [text for text in records if once not in text]
        for copy in range(1, times):
            file.write(comma + comma.join(move(text, copy) for text in repeated))
        file.write(_FINISH.sub(lambda found: found[1] + b"%d" % (int(found[2]) + longer_ms), _tail(data, array)))


def _between(array: RecordArray) -> bytes:
    return array.separator[: len(array.separator) - array.opener].lstrip()[1:] or b",\n"


def _tail(data: bytes, array: RecordArray) -> bytes:
    """Return the bytes after the closing brace of the last record."""
    return data[data.rindex(b"}", array.start, array.end) + 1 :]


def main() -> None:
    parser = argparse.ArgumentParser(description="Repeat a pair of an ET and a Kineto trace.")
    parser.add_argument("et", type=Path)
    parser.add_argument("kineto", type=Path)
    parser.add_argument("times", type=int)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    for path in repeat_pair(arguments.et, arguments.kineto, arguments.times, arguments.folder):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
