"""Test etplus on a machine with a GPU: record pairs, link them, check them against the truth, and write a report.

    python benchmarks/gpu_session.py OUT                      # run all parts in about 20 minutes
    python benchmarks/gpu_session.py OUT --only amp capture   # run only these parts and keep the other results in OUT
    python benchmarks/gpu_session.py OUT --dry-run            # run small programs on the CPU
    python benchmarks/gpu_session.py OUT --python PYTHON      # use PyTorch from another environment

The session has four kinds of parts. Programs are recorded by `etplus record` (training, mixed precision, torch.compile,
CUDA graphs, DDP and FSDP with one rank, inference, model families from programs.py). A CUDA graph is captured and
replayed. Recorded operators are measured again. Changes test the findings. For each change, the versions before and
after it are recorded and timed, and the gain is compared with the predictions of the findings. If a part fails or
exceeds the time limit (`--minutes`), the report states the reason, and the session continues with the other parts. OUT
contains report.md, report.json, a file for each part, and the traces.

The script works from a checkout. Only the dependencies of etplus must be installed. The exit status is 1 if a part
failed, otherwise 0.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROGRAMS = ("train", "amp", "compiled", "graphs", "ddp", "fsdp", "inference")
FAMILIES = ("vit", "resnet", "gpt_randint", "recommender")
# Maps each change to the finding that should suggest it.
EXPECTED = {
    "item": "synchronizing-calls", "attention": "eager-attention", "elementwise": "elementwise-chains",
    "tf32": "float32-without-tf32", "pageable": "pageable-copies", "optimizer": "optimizer-loop",
    "launches": "launch-bound", "double": "double-precision", "recomputation": "recomputation",
    "layout": "layout-conversions", "odd": "product-dimensions",
}  # fmt: skip
STEPS = ("9-11", "13")
Facts = dict[str, Any]


class PartError(Exception):
    """The reason why a part failed."""


@dataclass
class Session:
    out: Path
    python: str
    dry: bool
    deadline: float
    env: dict[str, str] = field(default_factory=dict)

    @property
    def device(self) -> list[str]:
        return ["--device", "cpu", "--small"] if self.dry else ["--device", "cuda"]

    def run(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command, and wait until it ends.

        Raises:
            PartError: the time is up, or `check` is True and the command failed.
        """
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise PartError("no time left")
        try:
            done = subprocess.run([*map(str, words)], capture_output=True, text=True, env=self.env, timeout=left)
        except subprocess.TimeoutExpired:
            raise PartError(f"stopped {words[1]} after {left:.0f} s: no time left") from None
        if check and done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise PartError(
                f"{Path(str(words[1])).name} exited with status {done.returncode}: {said[-1] if said else ''}"
            )
        return done

    def program(self, name: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return self.run(self.python, HERE / "gpu_programs.py", name, *self.device, *words)

    def etplus(self, *words: str | Path, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
        return self.run(python, "-m", "etplus", *words)

    def record(self, name: str, *words: str) -> Path:
        """Record a program with `etplus record`. Return the folder that contains its traces."""
        folder = self.out / "traces" / "-".join([name, *(word.strip("-") for word in words)])
        program = [self.python, HERE / "gpu_programs.py", name, *self.device, "--steps", STEPS[1], *words]
        said = self.etplus("record", "--steps", STEPS[0], "-o", folder, "--", *program).stderr
        if not (folder / "rank-0.kineto.json.gz").exists():
            raise PartError(f"nothing was recorded: {said.strip().splitlines()[-1:]}")
        return folder


def about_machine(session: Session) -> Facts:
    facts: Facts = json.loads(session.program("about").stdout.splitlines()[-1])
    return facts


def recorded_program(session: Session, name: str) -> Facts:
    """Record a program, link its traces, and check them against the truth."""
    from etplus import link
    from gpu_truth import check_ids, check_modules, events_of

    folder = session.record(name)
    kineto = folder / "rank-0.kineto.json.gz"
    trace, events = link(folder / "rank-0.et.json.gz", kineto), events_of(kineto)
    ops, kernels = check_modules(trace, events)
    return linked_facts(trace) | {"ids": check_ids(trace, events), "modules": ops, "kernel_modules": kernels}


def linked_facts(trace: Any) -> Facts:
    report, found = trace.link_report, trace.findings()
    gpu = report.gpu
    attached = sum(counts["attached"] for counts in gpu.get("categories", {}).values())
    events = sum(counts["total"] for counts in gpu.get("categories", {}).values())
    return {
        "ops": report.ops["total"], "linked": report.ops["linked"], "certain": report.ops["certain"],
        "unlinked": report.ops["unlinked"], "device_events": events, "attached": attached,
        "attached_time": gpu["attached_time_ns"] / gpu["time_ns"] if gpu.get("time_ns") else None,
        "verdict": report.identity and report.identity.verdict,
        "replay_error": found.base and found.base.makespan,
        "findings": [f"{finding.id}: {finding.title}" for finding in found.all[:3]], **untraced(trace),
    }  # fmt: skip


def untraced(trace: Any) -> Facts:
    from etplus.trace.step_annotations import untraced_step

    step, steps = untraced_step(trace.names), trace.steps
    if step is None or not len(steps):
        return {}
    return {
        "untraced_ns": step.step_ns, "untraced_host_ns": step.host_ns,
        "recorded_ns": int(steps.end[-1] - steps.start[0]) // len(steps),
    }  # fmt: skip


def captured(session: Session) -> Facts:
    """Record a graph and its capture. Report how many of its replayed kernels are linked to the right operator."""
    from etplus.linker import link
    from gpu_truth import check_captured, events_of

    folder = session.out / "traces" / "capture"
    session.program("capture", "--out", folder)
    graphs = (folder / "rank-0.graphs.et.json.gz", folder / "rank-0.graphs.kineto.json.gz")
    pair = (folder / "rank-0.et.json.gz", folder / "rank-0.kineto.json.gz")
    trace = link(*pair, graph_captures=[] if session.dry else [graphs])  # PyTorch cannot capture graphs on a CPU.
    events = trace.device_events
    return linked_facts(trace) | {
        "captured": sum(event.captured_by is not None for event in events),
        "modules": check_captured(trace, events_of(graphs[1])),
    }  # fmt: skip


def measured(session: Session) -> Facts:
    from etplus.planning.measure.measured import read_measured

    folder = session.out / "traces" / "train"
    if not (folder / "etplus").is_dir():
        session.record("train")
    target = session.out / "measured.json"
    device = "cpu" if session.dry else "cuda:0"
    session.etplus("measure", folder / "etplus" / "rank_0.etplus.json.gz", "-o", target, "--device", device,
        "--threads", "1", "--budget", "5" if session.dry else "60", python=session.python)  # fmt: skip
    found = read_measured(target)
    ratios = sorted(timing.ns / timing.recorded_ns for timing in found.timings if timing.recorded_ns)
    return {
        "timed": len(found.timings), "executed": found.executed,
        "to_recorded": ratios[len(ratios) // 2] if ratios else None,
        "not_executed": {f"{one.op}: {one.reason}": one.count for one in found.not_executed[:10]},
    }  # fmt: skip


def changed(session: Session, name: str) -> Facts:
    """Time a change without a profiler. Compare the gain with the findings on the recordings."""
    from etplus import link

    times = json.loads(session.program(name, "--time").stdout.splitlines()[-1])
    folders = [session.record(name), session.record(name, "--after")]
    before_trace, after_trace = (link(one / "rank-0.et.json.gz", one / "rank-0.kineto.json.gz") for one in folders)
    before, after = before_trace.findings(), after_trace.findings()
    expected = EXPECTED[name]
    gains = [finding.gain for finding in before if finding.id == expected and finding.gain is not None]
    whole = max(before.makespan_ns, 1)
    return {
        "expected": expected, "present": any(finding.id == expected for finding in before),
        "gone": not any(finding.id == expected for finding in after),
        "measured_gain": 1 - times["after_ns"] / times["before_ns"], **times, **untraced(before_trace),
        "predicted": [sum(getattr(gain, part) for gain in gains) / whole for part in ("ns", "low_ns", "high_ns")]
        if gains else None,
        "findings": [finding.id for finding in before.first],
    }  # fmt: skip


PARTS: dict[str, Callable[[Session], Facts]] = {
    "machine": about_machine,
    **{name: partial(recorded_program, name=name) for name in (*PROGRAMS, *FAMILIES)},
    "capture": captured,
    "measure": measured,
    **{f"change-{name}": partial(changed, name=name) for name in EXPECTED},
}


def problems(part: str, facts: Facts, *, dry: bool) -> list[str]:
    found = []
    for what in ("ids", "modules", "kernel_modules"):
        compared, right = facts.get(what, (0, 0))
        if right < compared:
            found.append(f"{what}: {compared - right} of {compared} wrong")
    if "linked" in facts and facts["linked"] < 0.99 * facts["ops"]:
        found.append(f"{facts['linked']} of {facts['ops']} operators linked")
    if "certain" in facts and facts["certain"] < facts["linked"]:
        found.append(f"{facts['linked'] - facts['certain']} links not certain")
    if not dry and "device_events" in facts and not facts["device_events"]:
        found.append("no device events")
    if not dry and part == "capture" and not facts["captured"]:
        found.append("no kernel of a graph replay was linked to the capture")
    if not dry and not facts.get("present", True) and facts["measured_gain"] > 0.1:
        found.append(f"{facts['expected']} was not found, but the change saves {facts['measured_gain']:.0%}")
    return found


def run_part(session: Session, name: str) -> Facts:
    begin = time.monotonic()
    state: Facts
    try:
        facts = PARTS[name](session)
        state = {"facts": facts, "problems": problems(name, facts, dry=session.dry)}
    except PartError as error:
        state = {"failed": str(error)}
    except Exception as error:  # The report also lists unexpected errors.
        state = {"failed": f"{type(error).__name__}: {error}"}
    return {"part": name, "seconds": round(time.monotonic() - begin, 1), "dry_run": session.dry, **state}


def report_text(parts: list[Facts]) -> str:
    by_name = {part["part"]: part for part in parts}
    machine = by_name.get("machine", {}).get("facts", {})
    kind = "dry run on the CPU" if any(part["dry_run"] for part in parts) else machine.get("device", "unknown device")
    lines = [f"# GPU session: {kind}", "", ", ".join(f"{key} {value}" for key, value in machine.items()), ""]
    wrong = [f"- **{part['part']}** failed: {part['failed']}" for part in parts if "failed" in part]
    wrong += [f"- **{part['part']}**: {problem}" for part in parts for problem in part.get("problems", ())]
    lines += ["## Failed or wrong", "", *(wrong or ["nothing"]), ""]
    done = {part["part"]: part["facts"] for part in parts if "facts" in part}
    lines += ["## Programs", "", "| program | linked | certain | events attached | GPU time attached | correct ids | "
              "correct operator modules | of kernels | replay error | step: untraced, recorded ms | findings |",
              "|" + "---|" * 11]  # fmt: skip
    lines += [_program_row(name, done[name]) for name in (*PROGRAMS, *FAMILIES) if name in done]
    if "capture" in done:
        facts = done["capture"]
        lines += ["", f"Capture: {facts['captured']} of {facts['device_events']} device events have a call from "
                  f"the capture; correct modules: {_of(facts['modules'])}."]  # fmt: skip
    if "measure" in done:
        facts = done["measure"]
        lines += ["", f"Operators run again: {facts['timed']} distinct calls, {_share(facts['executed'])} of the "
                  f"operators' time; median new / recorded time: {facts['to_recorded'] or 0:.2f}."]  # fmt: skip
    lines += ["", "## Changes", "", "| change | finding | found before | gone after | measured gain | predicted | "
              "all findings |", "|" + "---|" * 7]  # fmt: skip
    lines += [_change_row(name, done[f"change-{name}"]) for name in EXPECTED if f"change-{name}" in done]
    return "\n".join([*lines, ""])


def _program_row(name: str, facts: Facts) -> str:
    cells = [
        name, f"{facts['linked']} of {facts['ops']}", facts["certain"],
        f"{facts['attached']} of {facts['device_events']}",
        _share(facts["attached_time"]), _of(facts["ids"]), _of(facts["modules"]), _of(facts["kernel_modules"]),
        _share(facts["replay_error"]), _step_ms(facts), ", ".join(text.partition(":")[0] for text in facts["findings"]),
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def _change_row(name: str, facts: Facts) -> str:
    predicted = facts["predicted"]
    gain = "none" if predicted is None else "{:.1%} ({:.1%} to {:.1%})".format(*predicted)
    cells = [
        name, facts["expected"], "yes" if facts["present"] else "no", "yes" if facts["gone"] else "no",
        f"{facts['before_ns'] / 1e6:.3f}, {_step_ms(facts)}", _share(facts["measured_gain"]), gain,
        ", ".join(facts["findings"]),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _step_ms(facts: Facts) -> str:
    if "untraced_ns" not in facts:
        return "–"
    return f"{facts['untraced_ns'] / 1e6:.3f}, {facts['recorded_ns'] / 1e6:.3f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _of(checked: tuple[int, int]) -> str:
    compared, right = checked
    return f"{right} of {compared}" if compared else "–"


def make_importable(out: Path) -> str:
    """Return a PYTHONPATH with etplus and its dependencies. The path works for any interpreter of the same Python
    version."""
    folder = out.resolve() / ".path"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "etplus").is_symlink():  # The root of the repository is the package `etplus`.
        (folder / "etplus").symlink_to(HERE.parent, target_is_directory=True)
    sys.path[:0] = [str(folder), str(HERE)]
    here = [path for path in sys.path if "site-packages" in path and Path(path).is_dir()]
    return os.pathsep.join([str(folder), *here, *filter(None, [os.environ.get("PYTHONPATH")])])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--dry-run", action="store_true", help="run small programs on the CPU instead")
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter with PyTorch; its Python version must match this one's"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument(
        "--minutes", type=float, default=60, help="time limit after which unfinished parts fail (default: %(default)g)"
    )
    options = parser.parse_args()
    kept = options.out / "parts"
    kept.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "PYTHONPATH": make_importable(options.out)}
    session = Session(options.out, options.python, options.dry_run, time.monotonic() + 60 * options.minutes, env)
    for name in dict.fromkeys(["machine", *options.only]):
        part = run_part(session, name)
        (kept / f"{name}.json").write_text(json.dumps(part, indent=1))
        print(
            f"{name:24}{part['seconds']:7.1f} s  {part.get('failed') or '; '.join(part['problems']) or 'done'}",
            flush=True,
        )
        files = (kept / f"{one}.json" for one in PARTS)
        parts = [json.loads(file.read_text()) for file in files if file.exists()]
        (options.out / "report.json").write_text(json.dumps(parts, indent=1))
        (options.out / "report.md").write_text(report_text(parts))
    print(f"wrote {options.out / 'report.md'} and report.json")
    return int(any("failed" in part for part in parts))


if __name__ == "__main__":
    raise SystemExit(main())
