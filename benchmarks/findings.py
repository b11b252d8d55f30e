"""Findings scored on pairs of traces before and after a change, and false alarms on every trace beside the repository.

    python benchmarks/findings.py [--traces FOLDER] [PAIR…]

Three kinds of pairs: steps recorded on a CPU, whose gain was measured without the profiler (`fixtures/findings`); made
steps of one GPU (`tests/made_gpu_steps.py`) and made jobs (`tests/made_job_pairs.py`), whose gain follows from how they
were made. Of each: is the finding that is expected there before the change, and gone after it; is the sign of its gain
right; is its size within 30% of the measured one; does its interval contain that. Gains are shares of the time before:
a recorded step is longer than one without the profiler. With `--traces` all findings on these traces are printed, too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
from etplus.analysis.findings import Case, Finding, Findings, find_findings
from etplus.linker import link
from etplus.trace.errors import EtplusError

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from made_gpu_steps import GPU_PAIRS, well_tuned  # noqa: E402
from made_job_pairs import JOB_PAIRS, NETWORK, tuned_job  # noqa: E402

RECORDED = ROOT / "fixtures" / "findings"
SIZE = 0.3
"""Largest relative error of a gain that counts as right."""

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
    "item_each_step": ("synchronising-calls",),
    "late_start": ("late-start",),
    "eager_attention": ("eager-attention",),
    "elementwise_chain": ("elementwise-chains",),
    "odd_products": ("product-dimensions",),
    "pageable_copies": ("pageable-copies",),
    "malloc_in_step": ("allocator-calls",),
    "slow_bandwidth": ("slower-than-like-work",),
    "layout_changes": ("layout-conversions",),
    "float32_products": ("float32-without-tf32",),
    "exposed_reduce": ("exposed-communication",),
    "small_messages": ("small-messages",),
    "straggler": ("straggler",),
}
"""Of each pair the finding, or the findings of which one, that must be there before and none of it after."""
HELD_OUT: dict[str, tuple[str, ...]] = {
    "cross_attention": ("eager-attention",),
    "gated": ("elementwise-chains",),
    "double_convolutions": ("double-precision",),
    "norms": ("small-operators",),
}
"""Likewise, recorded when the findings were done; they do not count in the totals."""
UNEXPECTED = ("batch",)
"""Changes that no finding suggests: nothing in a trace says that a bigger batch would still train."""


@dataclass(frozen=True)
class Truth:
    """Findings of a pair, and what its change gains, as a share of the time before."""

    name: str
    before: Findings
    after: Findings
    gain: float


@dataclass(frozen=True)
class Score:
    """How one pair came out.

    Attributes:
        present, gone: the finding is there before; none of it after. first: it is on the first screen.
        gain: measured. predicted, low, high: of the finding, None where it has no gain; all as shares of the time
            before the change.
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
    """One pair; of several findings of the same id the gains add up, each is another place."""
    before = [finding for finding in truth.before if finding.id in expected]
    gains = [finding.gain for finding in before if finding.gain is not None]
    whole = truth.before.makespan_ns
    sums = [sum(values) / whole for values in zip(*((g.ns, g.low_ns, g.high_ns) for g in gains), strict=True)]
    predicted, low, high = sums if gains else (None, None, None)
    gone = not any(finding.id in expected for finding in truth.after)
    first = any(finding.id in expected for finding in truth.before.first)
    return Score(truth.name, expected, bool(before), gone, first, truth.gain, predicted, low, high)


def recorded_truth(name: str, folder: Path = RECORDED) -> Truth:
    """A pair of recordings; the time of a step by its samples."""
    measured = orjson.loads((folder / "measured.json").read_bytes())[name]
    before, after = (measured[when]["step_ns"] / measured[when]["samples"] for when in ("before", "after"))
    found = (_recorded(folder / name, when) for when in ("before", "after"))
    return Truth(name, *found, 1 - after / before)


def _recorded(folder: Path, when: str) -> Findings:
    pairs = [(et, Path(str(et).replace(".et.", ".kineto."))) for et in sorted(folder.glob(f"{when}*.et.json.gz"))]
    return find_findings(Case([link(*pair) for pair in pairs]))


def gpu_truth(name: str) -> Truth:
    """A made step of one GPU."""
    machines = [GPU_PAIRS[name].played(after=after) for after in (False, True)]
    before, after = (find_findings(Case([link(None, orjson.dumps(one.document()))])) for one in machines)
    return Truth(name, before, after, 1 - machines[1].makespan_ns / machines[0].makespan_ns)


def job_truth(name: str) -> Truth:
    """A made job."""
    jobs = [JOB_PAIRS[name].job(after=after) for after in (False, True)]
    found = []
    for job in jobs:
        with tempfile.TemporaryDirectory() as folder:
            pairs = job.write(Path(folder), waits=True, network=NETWORK)
            found.append(find_findings(Case([link(*pair) for pair in pairs])))
    times = [job.makespan_ns(NETWORK) for job in jobs]
    return Truth(name, *found, 1 - times[1] / times[0])


def truth_of(name: str) -> Truth:
    """A pair by its name."""
    if name in GPU_PAIRS:
        return gpu_truth(name)
    return job_truth(name) if name in JOB_PAIRS else recorded_truth(name)


def scores(names: Sequence[str] = ()) -> list[Score]:
    """Of all pairs that count, or of some."""
    return [score(truth_of(name), {**EXPECTED, **HELD_OUT}[name]) for name in names or EXPECTED]


def tuned() -> Findings:
    """Of the well-tuned made step, in which nothing is to be found."""
    return find_findings(Case([link(None, orjson.dumps(well_tuned().document()))]))


def tuned_ranks() -> Findings:
    """Of the well-tuned made job."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = tuned_job().write(Path(folder), waits=True, network=NETWORK)
        return find_findings(Case([link(*pair) for pair in pairs]))


def shared(folder: Path) -> Iterator[tuple[str, Findings]]:
    """Findings of every trace that can be linked, each alone, and of the jobs of several ranks."""
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


def print_scores(names: Sequence[str], *, whole: bool) -> None:
    """A line a pair, and totals."""
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
    parser.add_argument("--traces", type=Path, help="print all findings on the traces of this folder")
    parser.add_argument("--all", action="store_true", help="print all findings of each pair")
    options = parser.parse_args()
    for names in ([*options.pairs],) if options.pairs else ([*EXPECTED], [*HELD_OUT]):
        print(f"{'pair':20}{'measured':>8}{'gain':>8}{'interval':>14}   there    gone    sign    size  within  finding")
        print_scores(names, whole=options.all)
    print(f"well-tuned: {[one.id for one in tuned()]}, job: {[one.id for one in tuned_ranks()]}")
    if options.traces:
        for name, findings in shared(options.traces):
            print_findings(name, findings)


if __name__ == "__main__":
    main()
