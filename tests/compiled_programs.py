"""Compiled programs that were recorded, and which kernel each call is of, by the generated code's own comments."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from support import FIXTURES, SHARED, read_json

SHARED_PROGRAMS = ("mlp", "convnet")


class Kernel(NamedTuple):
    """A call in the trace: its index in `traceEvents` and its name; its key in the file, and the stacks of that."""

    event: int
    name: str
    key: str
    stacks: list[list[str]]


def program(name: str) -> Path | None:
    """The files' name without the suffix, None where they are not at hand."""
    path = (SHARED / "traces" if name in SHARED_PROGRAMS else FIXTURES) / "compiled" / name
    return path if Path(f"{path}.kineto.json.gz").exists() else None


def files(path: Path) -> tuple[Path, Path]:
    """ET and Kineto trace."""
    return Path(f"{path}.et.json.gz"), Path(f"{path}.kineto.json.gz")


def frames(text: str) -> list[str]:
    """A traceback as names of Python frames."""
    found = re.findall(r'File "([^"]*)", line (\d+), in (\S+)', text)
    return [f"{file}({line}): {function}" for file, line, function in found]


def kernels(path: Path) -> list[Kernel]:
    """Every kernel of every compiled graph that the trace shows, by scanning its events."""
    information = read_json(Path(f"{path}.kernel_information.json.gz"))
    truth_file = Path(f"{path}.truth.json.gz")
    truth = read_json(truth_file) if truth_file.exists() else {}
    regions = [key for key in information if key.endswith("False)")]
    events = read_json(Path(f"{path}.kineto.json.gz"))["traceEvents"]
    calls = [(i, e) for i, e in enumerate(events) if e.get("cat") in ("cpu_op", "user_annotation")]
    found = []
    for _, graph in calls:
        if not graph["name"].startswith("## Call CompiledFxGraph"):
            continue
        around = [e for _, e in calls if _inside(graph, e)]
        region, backward = _region(around, [e for _, e in calls])
        entries = information[str((region, backward))]
        listed = _listed(truth, regions.index(str((region, False))), entries)[backward]
        below = [(i, e) for i, e in calls if _inside(e, graph) and e is not graph and e["cat"] == "cpu_op"]
        outer = [(i, e) for i, e in below if not any(_inside(e, other) and other is not e for _, other in below)]
        outer.sort(key=lambda call: call[1]["ts"])
        if not any("cpp_fused" in e["name"] for _, e in outer):
            listed = [key for key in listed if "cpp_fused" not in key]
        for (i, event), key in zip(outer, listed, strict=True):
            stacks = [frames(text) for text in entries[key]["stack_traces"]]
            found.append(Kernel(i, event["name"], key, stacks))
    return found


def _inside(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    begins = outer["ts"] <= inner["ts"] and inner["tid"] == outer["tid"]
    return begins and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]


def _region(around: list[dict[str, Any]], calls: list[dict[str, Any]]) -> tuple[str, bool]:
    backwards = [e for e in around if e["name"] == "CompiledFunctionBackward"]
    if backwards:
        number = backwards[0]["args"]["Sequence number"]
        forward = [e for e in calls if e["name"] == "CompiledFunction" and e["args"]["Sequence number"] == number]
        around = [e for e in calls if _inside(forward[0], e)]
    regions = [e for e in around if e["name"].startswith("Torch-Compiled Region: ")]
    return min(regions, key=lambda e: e["dur"])["name"], bool(backwards)


def _listed(truth: dict[str, list[str]], model: int, entries: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The keys that the generated code of a model's forward and backward calls, in its order."""
    if not truth:
        return list(entries), list(entries)
    forward, backward = (
        [keys for name, keys in truth.items() if re.match(rf"model__{model}_(?:{kind})_", name)]
        for kind in ("forward|inference", "backward")
    )
    return forward[0], backward[0] if backward else []
