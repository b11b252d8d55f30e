"""Score findings on pairs of traces from before and after a change, and list false alarms on other traces.

    python benchmarks/findings.py [--traces FOLDER] [--gains FOLDER]... [PAIR…]

There are three kinds of pairs. The first kind is steps that were recorded on a CPU (`fixtures/findings`), with gains
measured without the profiler. The second and third kind are generated GPU steps and generated jobs
(`finding_pairs.py`), with gains that follow from their construction. For each pair, the expected finding must be
present before the change and absent after it. The predicted gain must have the right sign and be within 30% of the
measured gain, and its interval must contain the measured gain. Gains are given as shares of the time before the change,
because the profiler makes recorded steps longer. `--traces` prints all findings on the traces in FOLDER.

`--gains` scores only a FOLDER that `benchmarks/record_gains.py` wrote. For each change, the gain that a what-if or the
findings predict is compared with the times of both versions, measured without a profiler.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
from etplus import build_graph, fit_constants, replay
from etplus.analysis.findings import Case, Finding, Findings, find_findings
from etplus.linker import link
from etplus.timeline.untraced import untraced_answer
from etplus.timeline.whatif import apply_what_ifs, parse_what_if
from etplus.trace.errors import EtplusError

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from finding_pairs import GPU_PAIRS, JOB_PAIRS, NETWORK, played, well_tuned  # noqa: E402

RECORDED = ROOT / "fixtures" / "findings"
# A predicted gain is correct if its relative error is at most this value.
SIZE = 0.3

# Expected findings of each pair. At least one must be present before the change, and none after the change.
EXPECTED: dict[str, tuple[str, ...]] = {
    "item": ("host-loop",),
    "attention": ("eager-attention",),
    "channels_last": ("tensor-copies",),
    "compiled": ("elementwise-chains",),
    "float64": ("double-precision",),
    "data": ("data-loading",),
    "foreach": ("small-operators",),
    "optimizer": ("optimizer-loop",),
    "recomputation": ("recomputation",),
    "contiguous": ("tensor-copies",),
    "experts": ("small-operators",),
    "bucket": ("small-messages",),
    "messages": ("small-messages",),
    "launch_bound": ("launch-bound",),
    "item_each_step": ("synchronizing-calls",),
    "late_start": ("late-start",),
    "pageable_copies": ("pageable-copies",),
    "exposed_reduce": ("exposed-communication",),
    "small_messages": ("small-messages",),
    "straggler": ("straggler",),
}
# Expected findings of pairs that were recorded after the detectors had been written. The totals omit these pairs.
HELD_OUT: dict[str, tuple[str, ...]] = {
    "cross_attention": ("eager-attention",),
    "gated": ("elementwise-chains",),
    "double_convolutions": ("double-precision",),
    "norms": ("small-operators",),
}
# Maps each folder of `--gains` to the what-ifs that model its change, or to the finding that suggests the change.
GAINS: dict[str, str | list[str]] = {
    "checkpointed": ["phase=recomputation cpu*0"],
    "depth_5to4": ["module~Blk_4 cpu*0"],
    "loader": ["remove op:~DataLoader"],
    "opt_every_2": ["remove op:~Optimizer.step"],
    "no_backward": ["phase=backward cpu*0", "phase~accumulation cpu*0", "remove op:~Optimizer"],
    "gelu_twice": ["op:aten::gelu*0.5", "op:aten::gelu_backward*0.5"],
    "dropout": ["remove op:aten::dropout", "remove op:~MulBackward0"],
    "block": ["module~Extra cpu*0"],
    "blocks_small": ["module~Extra cpu*0"],
    "norms": ["module~LayerNorm cpu*0"],
    "momentum_step": ["remove op:~Optimizer.step"],
    "adam_step": ["remove op:~Optimizer.step"],
    "loading": ["remove op:~DataLoader"],
    "float64": "double-precision",
    "loop_to_fused": "optimizer-loop",
    "fused_step": "optimizer-loop",
    "sleep_removed": "unrecorded-host-time",
    "small_ops": "small-operators",
    "experts": "small-operators",
    "attention": "eager-attention",
    "reading": "host-loop",
}
NARROW, NARROW_STEP, THIRD, LARGE = 0.4, 0.015, 1 / 3, 0.03
# No finding suggests these changes, because a trace cannot show if a model still trains well with a larger batch.
UNEXPECTED = ("batch",)


@dataclass(frozen=True)
class Truth:
    """The findings before and after a change, and the measured gain as a share of the time before the change."""

    name: str
    before: Findings
    after: Findings
    gain: float


@dataclass(frozen=True)
class Score:
    """The score of one pair.

    `present` means that the finding exists before the change, `gone` that it does not exist after the change, and
    `first` that it is on the first screen. `gain` was measured. `predicted`, `low` and `high` come from the finding,
    and are None if it has no gain. All gains are shares of the time before the change.
    """

    name: str
    expected: tuple[str, ...]
    present: bool
    gone: bool
    first: bool
    gain: float
    predicted: float | None
    low: float | None
    high: float | None

    @property
    def sign(self) -> bool:
        return self.predicted is not None and (self.predicted > 0) == (self.gain > 0)

    @property
    def size(self) -> bool:
        return self.predicted is not None and abs(self.predicted - self.gain) <= SIZE * abs(self.gain)

    @property
    def contained(self) -> bool:
        return self.low is not None and self.high is not None and self.low <= self.gain <= self.high

    def line(self) -> str:
        flags = "".join(f"{_mark(flag):>8}" for flag in (self.present, self.gone, self.sign, self.size, self.contained))
        share = "       –" if self.predicted is None else f"{self.predicted:8.1%}"
        between = "" if self.low is None or self.high is None else f"{self.low:.0%} to {self.high:.0%}"
        return f"{self.name:20}{self.gain:8.1%}{share}{between:>14}{flags}  {'/'.join(self.expected)}"


def _mark(flag: bool) -> str:
    return "yes" if flag else "NO"


def score(truth: Truth, expected: tuple[str, ...]) -> Score:
    """Score one pair. If several findings have an expected id, their gains are added, because they concern different
    places."""
    before = [finding for finding in truth.before if finding.id in expected]
    gains = [finding.gain for finding in before if finding.gain is not None]
    whole = truth.before.makespan_ns
    sums = [sum(values) / whole for values in zip(*((g.ns, g.low_ns, g.high_ns) for g in gains), strict=True)]
    predicted, low, high = sums if gains else (None, None, None)
    gone = not any(finding.id in expected for finding in truth.after)
    first = any(finding.id in expected for finding in truth.before.first)
    return Score(truth.name, expected, bool(before), gone, first, truth.gain, predicted, low, high)


def recorded_truth(name: str, folder: Path = RECORDED) -> Truth:
    measured = orjson.loads((folder / "measured.json").read_bytes())[name]
    before, after = (measured[when]["step_ns"] / measured[when]["samples"] for when in ("before", "after"))
    found = (_recorded(folder / name, when) for when in ("before", "after"))
    return Truth(name, *found, 1 - after / before)


def _recorded(folder: Path, when: str) -> Findings:
    pairs = [(et, Path(str(et).replace(".et.", ".kineto."))) for et in sorted(folder.glob(f"{when}*.et.json.gz"))]
    return find_findings(Case([link(*pair) for pair in pairs]))


def gpu_truth(name: str) -> Truth:
    machines = [played(GPU_PAIRS[name], after=after) for after in (False, True)]
    before, after = (find_findings(Case([one.trace()])) for one in machines)
    return Truth(name, before, after, 1 - machines[1].span_ns / machines[0].span_ns)


def job_truth(name: str) -> Truth:
    jobs = [JOB_PAIRS[name][after] for after in (False, True)]
    found = []
    for job in jobs:
        with tempfile.TemporaryDirectory() as folder:
            pairs = job.write(Path(folder), waits=True, network=NETWORK)
            found.append(find_findings(Case([link(*pair) for pair in pairs])))
    times = [job.makespan_ns(NETWORK) for job in jobs]
    return Truth(name, *found, 1 - times[1] / times[0])


def truth_of(name: str) -> Truth:
    if name in GPU_PAIRS:
        return gpu_truth(name)
    return job_truth(name) if name in JOB_PAIRS else recorded_truth(name)


def scores(names: Sequence[str] = ()) -> list[Score]:
    return [score(truth_of(name), {**EXPECTED, **HELD_OUT}[name]) for name in names or EXPECTED]


def tuned() -> Findings:
    return find_findings(Case([well_tuned().trace()]))


def tuned_ranks() -> Findings:
    with tempfile.TemporaryDirectory() as folder:
        pairs = JOB_PAIRS["straggler"][True].write(Path(folder), waits=True, network=NETWORK)
        return find_findings(Case([link(*pair) for pair in pairs]))


def shared(folder: Path) -> Iterator[tuple[str, Findings]]:
    """Yield the findings on each trace that can be linked, and on each job that has several ranks."""
    for kineto in sorted(folder.glob("*/*.json.gz")):
        name = kineto.name.removesuffix(".json.gz").removesuffix(".kineto")
        if ".et." in kineto.name or kineto.parent.name == "et-only":
            continue
        et = kineto.with_name(f"{name}.et.json.gz")
        try:
            trace = link(et if et.exists() else None, kineto)
        except EtplusError:
            continue
        yield f"{kineto.parent.name}/{name}", find_findings(Case([trace]))


def print_findings(name: str, findings: Findings) -> None:
    base = "" if findings.base is None else f", replay {findings.base.makespan:+.1%}"
    print(f"\n{name}: {findings.makespan_ns / 1e6:,.2f} ms{base}, {len(findings)} findings")
    for finding in findings:
        print(f"  {_price(finding, findings.makespan_ns)} {finding.id} ({finding.certainty}): {finding.title}")
        for evidence in finding.evidence:
            print(f"      {evidence.text}: {evidence.value} {evidence.unit}  [{evidence.command}]")


def _price(finding: Finding, makespan: int) -> str:
    return "     –" if finding.gain is None else f"{finding.gain.ns / max(makespan, 1):6.1%}"


def predicted_gain(folder: Path, change: str | list[str]) -> tuple[float, float, float] | None:
    """Return the predicted gain of a change and its interval as shares of the untraced step. Return None if there is
    none."""
    trace = link(folder / "rank-0.et.json.gz", folder / "rank-0.kineto.json.gz")
    if isinstance(change, str):
        found = find_findings(Case([trace]))
        gains = [finding.gain for finding in found if finding.id == change and finding.gain is not None]
        ends = zip(*((gain.ns, gain.low_ns, gain.high_ns) for gain in gains), strict=True)
        shares = [sum(values) / found.makespan_ns for values in ends]
        return (shares[0], shares[1], shares[2]) if shares else None
    graph = build_graph(trace)
    constants = [fit_constants(graph)]
    what_ifs = [parse_what_if(text) for text in change]
    answer = untraced_answer(replay(graph, constants), constants, lambda to: apply_what_ifs(to, what_ifs, constants))
    if answer is None:
        return None
    usual, low, high = (1 - ns / answer.measured_ns for ns in (answer.usual_ns, answer.high_ns, answer.low_ns))
    return usual, low, high


def print_gains(folders: Sequence[Path]) -> None:
    print(f"{'change':16}{'true':>8}{'gain':>8}{'interval':>18}  within  narrow   third")
    bars: dict[str, list[bool]] = {"within": [], "narrow": [], "third": []}
    for file in sorted(file for folder in folders for file in folder.glob("*/truth.json")):
        name, measured = file.parent.name, orjson.loads(file.read_bytes())
        if name not in GAINS:
            continue
        truth, gain = 1 - measured["b"] / measured["a"], predicted_gain(file.parent, GAINS[name])
        usual, low, high = gain or (0.0, 0.0, 0.0)
        marks = {"within": low <= truth <= high, "narrow": (high - low) / 2 <= max(NARROW * abs(truth), NARROW_STEP)}
        if abs(truth) > LARGE:
            marks["third"] = abs(usual - truth) <= THIRD * abs(truth)
        for bar, met in marks.items():
            bars[bar].append(met)
        flags = "".join(f"{_mark(marks[bar]) if bar in marks else '–':>8}" for bar in bars)
        print(f"{name:16}{truth:8.1%}{usual:8.1%}{f'{low:.1%} to {high:.1%}':>18}{flags}")
    for bar, met in bars.items():
        print(f"{bar:8}{sum(met):4} of {len(met)}")


def print_scores(names: Sequence[str], *, whole: bool) -> None:
    found = []
    for name in names:
        truth = truth_of(name)
        found.append(score(truth, {**EXPECTED, **HELD_OUT}[name]))
        print(found[-1].line())
        if whole:
            print_findings("  before", truth.before)
            print_findings("  after", truth.after)
    for what in ("present", "gone", "first", "sign", "size", "contained"):
        print(f"{what:10}{sum(getattr(one, what) for one in found):4} of {len(found)}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "pairs", nargs="*", metavar="PAIR", help=f"one of {', '.join({**EXPECTED, **HELD_OUT})} (default: all)"
    )
    parser.add_argument("--traces", type=Path, help="print all findings on the traces in this folder")
    parser.add_argument("--all", action="store_true", help="print all findings for every pair")
    parser.add_argument(
        "--gains", type=Path, action="append", help="score the gains in a folder that record_gains.py wrote"
    )
    options = parser.parse_args()
    if options.gains:
        print_gains(options.gains)
        return
    for names in ([*options.pairs],) if options.pairs else ([*EXPECTED], [*HELD_OUT]):
        print(f"{'pair':20}{'measured':>8}{'gain':>8}{'interval':>14}   there    gone    sign    size  within  finding")
        print_scores(names, whole=options.all)
    print(f"well-tuned: {[one.id for one in tuned()]}, job: {[one.id for one in tuned_ranks()]}")
    if options.traces:
        for name, findings in shared(options.traces):
            print_findings(name, findings)


if __name__ == "__main__":
    main()
