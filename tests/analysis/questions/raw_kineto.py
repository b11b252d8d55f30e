"""Brute force over the events of a Kineto trace as its JSON has them; nothing of etplus is used."""

from __future__ import annotations

import gzip
import itertools
import re
from collections import Counter, defaultdict
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

__all__ = ["GPU", "RawTrace", "covered", "union"]

Event = dict[str, Any]
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_HOST = ("cuda_runtime", "cuda_driver")
_OWN = re.compile(r"(?!.*(?:^|/)(?:torch|threading\.py|runpy\.py))(.+)\((\d+)\): (.+)")


def ns(us: float) -> int:
    whole = int(us)
    return whole * 1000 + round((us - whole) * 1000)


def union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The time that some spans cover, as spans that do not touch."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif end > start:
            found.append((start, end))
    return found


def covered(spans: list[tuple[int, int]], by: list[tuple[int, int]]) -> int:
    """How much of some spans (a union) others (a union) cover."""
    return sum(max(min(end, stop) - max(start, begin), 0) for start, end in spans for begin, stop in by)


class RawTrace:
    """The events of one file."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        self.document: Event = orjson.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        events = [event for event in self.document["traceEvents"] if isinstance(event.get("ts"), (int, float))]
        for event in events:
            event["start"] = ns(event["ts"])
            event["end"] = event["start"] + ns(event.get("dur", 0))
        self.events = events

    def of(self, *categories: str) -> list[Event]:
        return [event for event in self.events if event.get("cat") in categories and event["ph"] == "X"]

    @cached_property
    def gpu(self) -> list[Event]:
        return sorted(self.of(*GPU), key=lambda event: event["start"])

    @cached_property
    def ops(self) -> list[Event]:
        return self.of("cpu_op")

    @cached_property
    def launch(self) -> dict[int, Event]:
        """By correlation the runtime call that launches."""
        return {event["args"]["correlation"]: event for event in self.of(*_HOST) if "correlation" in event["args"]}

    def launch_of(self, kernel: Event) -> Event | None:
        return self.launch.get(kernel["args"].get("correlation"))

    def around(self, event: Event, *categories: str) -> list[Event]:
        """Events of some categories on the same thread that enclose one, outermost first."""
        found = [
            other for other in self._by_thread[event["pid"], event["tid"]]
            if other["cat"] in categories and other["start"] <= event["start"] and other["end"] >= event["end"]
        ]  # fmt: skip
        return sorted(found, key=lambda other: (other["start"], -other["end"]))

    @cached_property
    def _by_thread(self) -> dict[tuple[Any, Any], list[Event]]:
        found = defaultdict(list)
        for event in self.of("cpu_op", "user_annotation", "python_function", *_HOST):
            found[event["pid"], event["tid"]].append(event)
        return found

    def op_of(self, kernel: Event) -> str | None:
        """Name of the innermost operator that launched a kernel."""
        launch = self.launch_of(kernel)
        around = [] if launch is None else self.around(launch, "cpu_op")
        return around[-1]["name"] if around else None

    def time_by(self, key: Any) -> Counter[Any]:
        """Device time by what a function says of each event; None is left out."""
        found: Counter[Any] = Counter()
        for kernel in self.gpu:
            value = key(kernel)
            if value is not None:
                found[value] += kernel["end"] - kernel["start"]
        return found

    @cached_property
    def steps(self) -> list[Event]:
        return sorted(
            (event for event in self.of("user_annotation") if event["name"].startswith("ProfilerStep#")),
            key=lambda event: event["start"],
        )

    def step_of(self, kernel: Event) -> int | None:
        """The step in which a kernel was launched."""
        launch = self.launch_of(kernel)
        return next(
            (
                at for at, step in enumerate(self.steps)
                if launch is not None and step["start"] <= launch["start"] < step["end"]
            ),
            None,
        )  # fmt: skip

    def line_of(self, kernel: Event) -> str | None:
        """The innermost frame of own code that was open at a kernel's launch: file and the number in its name."""
        launch = self.launch_of(kernel)
        frames = [] if launch is None else self.frames(launch)
        found = [match for frame in frames if (match := _OWN.fullmatch(frame["name"]))]
        return f"{found[-1][1]}:{found[-1][2]}" if found else None

    def frames(self, event: Event) -> list[Event]:
        """Python functions open at an event, of whatever thread they say that they are of."""
        found = [frame for frame in self.of_python if frame["start"] <= event["start"] and frame["end"] >= event["end"]]
        return sorted(found, key=lambda frame: (frame["start"], -frame["end"]))

    @cached_property
    def of_python(self) -> list[Event]:
        return self.of("python_function")

    def modules_of(self, kernel: Event) -> list[str]:
        """Modules that were open at a kernel's launch, outermost first."""
        launch = self.launch_of(kernel)
        frames = [] if launch is None else self.frames(launch)
        return [frame["name"] for frame in frames if frame["name"].startswith("nn.Module: ")]

    def busy(self, test: Any = lambda kernel: True) -> list[tuple[int, int]]:
        return union([(kernel["start"], kernel["end"]) for kernel in self.gpu if test(kernel)])

    @cached_property
    def span(self) -> tuple[int, int]:
        """From the first to the last of what etplus calls calls, runtime calls and device events."""
        events = self.of("cpu_op", "user_annotation", *_HOST, *GPU)
        return min(event["start"] for event in events), max(event["end"] for event in events)

    def gaps(self) -> list[tuple[int, int, Event]]:
        """Between device events: length, start, and the event after."""
        found, reach = [], self.gpu[0]["end"]
        for kernel in self.gpu[1:]:
            if kernel["start"] > reach:
                found.append((kernel["start"] - reach, reach, kernel))
            reach = max(reach, kernel["end"])
        return sorted(found, key=lambda gap: (-gap[0], gap[1]))

    def fill(self, start: int, end: int, thread: tuple[Any, Any]) -> Counter[str]:
        """Time by name of what ran innermost on a thread meanwhile, "" for nothing; boundary by boundary."""
        inside = [
            event for event in self._by_thread[thread]
            if event["cat"] in ("cpu_op", *_HOST) and event["start"] < end and event["end"] > start
        ]  # fmt: skip
        cuts = sorted({start, end, *(min(max(t, start), end) for e in inside for t in (e["start"], e["end"]))})
        found: Counter[str] = Counter()
        for begin, stop in itertools.pairwise(cuts):
            open_ = [event for event in inside if event["start"] <= begin and event["end"] >= stop]
            name = max(open_, key=lambda event: (event["start"], -event["end"]))["name"] if open_ else ""
            found[name] += stop - begin
        return found

    def self_times(self) -> Counter[str]:
        """Host time of operators by name, without operators, annotations and modules inside on the same thread."""
        found: Counter[str] = Counter()
        for thread in self._by_thread.values():
            events = [event for event in thread if event["cat"] in ("cpu_op", "user_annotation")]
            events.sort(key=lambda event: (event["start"], -event["end"]))
            open_: list[Event] = []
            for event in events:
                while open_ and open_[-1]["end"] <= event["start"]:
                    open_.pop()
                took = event["end"] - event["start"]
                if open_ and open_[-1]["cat"] == "cpu_op":
                    found[open_[-1]["name"]] -= took
                if event["cat"] == "cpu_op":
                    found[event["name"]] += took
                open_.append(event)
        return found
