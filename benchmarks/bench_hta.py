"""Compare the speed of `etplus analyze` with HTA (`traceinsight` on PyPI). etplus must be three times as fast.

    python benchmarks/bench_hta.py [--times N] [--hta PYTHON] [KINETO]

HTA loads a Kineto trace and computes the temporal, idle-time and kernel breakdowns. `etplus analyze` computes all of
its tables. If KINETO is omitted, the benchmark repeats the trace of `resnet103` next to the repository (54 MB for 5
repetitions) or a fixture. Unless PYTHON already has HTA, the benchmark installs it in a virtual environment in
`build/hta`. If HTA cannot be installed, the benchmark compares nothing. Each figure is the best of three separate
processes.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from repeat_pair import repeat_pair

ROOT = Path(__file__).parents[1]
REAL = ROOT.parent / "shared" / "traces" / "gpu-pairs" / "resnet103"
FIXTURE = ROOT / "fixtures" / "pairs" / "gpu_shaped_from_cpu"
BAR = 3.0
RUNS = 3
_HTA = """\
import sys
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]})
found.get_temporal_breakdown(visualize=False)
found.get_idle_time_breakdown(ranks=[0], visualize=False)
found.get_gpu_kernel_breakdown(visualize=False)
"""


def hta_python(given: str | None) -> str | None:
    if given is not None:
        return given
    folder = ROOT / "build" / "hta"
    python = str(folder / "bin" / "python")
    if not Path(python).exists():
        venv.create(folder, with_pip=True)
    install = [python, "-m", "pip", "install", "-q", "traceinsight"]
    return python if subprocess.run(install, check=False).returncode == 0 else None


def best(command: list[str]) -> tuple[float, float]:
    """Run a command several times. Return the minimum wall time and the minimum CPU time in seconds."""
    wall, processor = [], []
    for _ in range(RUNS):
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wall.append(time.perf_counter() - begin)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(wall), min(processor)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kineto", type=Path, nargs="?")
    parser.add_argument("--times", type=int, default=5, help="how many times to repeat the trace (default: 5)")
    parser.add_argument("--hta", metavar="PYTHON", help="a Python interpreter with HTA installed")
    arguments = parser.parse_args()
    python = hta_python(arguments.hta)
    if python is None:
        print("HTA cannot be installed here, so there is nothing to compare")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        kineto = arguments.kineto
        if kineto is None:
            pair = REAL if Path(f"{REAL}.et.json.gz").exists() else FIXTURE
            _, kineto = repeat_pair(
                Path(f"{pair}.et.json.gz"), Path(f"{pair}.kineto.json.gz"), arguments.times, Path(folder)
            )
        print(f"{kineto.name}: {kineto.stat().st_size / 1e6:.0f} MB")
        ours = best([sys.executable, "-m", "etplus", "analyze", str(kineto)])
        theirs = best([python, "-c", _HTA, str(kineto)])
    for name, (wall, processor) in (("etplus analyze", ours), ("HTA", theirs)):
        print(f"{name:15} {wall:7.2f} s, {processor:7.2f} s CPU time")
    ratio = theirs[0] / ours[0]
    print(f"etplus analyze is {ratio:.1f}× as fast as HTA (bar: {BAR:g})")
    return 0 if ratio >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
