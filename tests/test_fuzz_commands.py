"""Broken inputs through every command: no traceback, no input changed, one line and nothing written on refusal.

Some run with the suite; `pytest tests/test_fuzz_commands.py --fuzz-cases 5000` runs so many over all commands.
"""

import copy
import gzip
import importlib.util
import json
import random
import re
import shlex
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from captured import capture_events, encode, replay_events
from etplus.cli.parser import COMMANDS as ALL_COMMANDS
from etplus.converters.registry import exporters
from etplus.linker import link
from etplus.planning.measure.measured import VERSION, Conditions, Measured, Timing, write_measured
from etplus.planning.measure.recorded_calls import recorded_calls
from mutations import mutate
from nsys_files import et_of, small_export
from support import SHARED, TooSlowError, call, fixture_pair, plain, time_limit

PAIRS = ("pairs/one_of_n", "pairs/gpu_shaped_from_cpu")
LIMIT_S = 60
_RAW = "@raw:"
_VALUES: tuple[Any, ...] = (
    None, True, "", "x", "7", [], {}, [1], [[]], {"a": 1}, 0, -1, 1.5, 2**63, 2**64, -(2**70),
    f"{_RAW}1e400", f"{_RAW}NaN", f"{_RAW}{'[' * 900}{']' * 900}", f"{_RAW}{'[' * 5000}",
)  # fmt: skip


DEVICE = {"name": "Our GPU", "aliases": ["RTX"], "tflops": {"float32": 13.4}, "memory_gb_s": 616, "l2_bytes": 10**6}


KINETO = frozenset({"kineto.json", "replay.json", "capture.json", "job/rank0.kineto.json"})
ETS = frozenset({
    "et.json", "plus.json", "other.json", "job.0.json", "single.json", "nsys.et.json", "job/rank0.et.json",
})  # fmt: skip


class Command(NamedTuple):
    """A command line, the inputs of it that are broken, its exit statuses beside 0 and 2, and modules that it needs."""

    words: str
    inputs: tuple[str, ...]
    statuses: tuple[int, ...] = ()
    needs: tuple[str, ...] = ()


LIMITS = "--threads 1 --timeout 5 --max-bytes 64M --rounds 1 --budget 2"

COMMANDS = {
    "link": Command("link --et-file et.json --kineto-file kineto.json --output out/x.json --report out/r.json --jobs 1",
                    ("et.json", "kineto.json"), (3,)),
    "link captures": Command("link replay.json --graph-capture capture.json -o out/x.json --json out/r.json --jobs 1",
                             ("replay.json", "capture.json"), (3,)),
    "link nsys": Command("link nsys.et.json export.sqlite -o out/x.json.gz --jobs 1",
                         ("nsys.et.json", "export.sqlite"), (3,)),
    "link nsys alone": Command("link export.sqlite -o out/x.json --jobs 1", ("export.sqlite",)),
    "convert": Command("convert plus.json -o out/x --to FORMAT", ("plus.json",)),
    "convert ranks": Command("convert plus.json other.json -o out/x --to MANY --job job.json",
                             ("plus.json", "other.json", "job.json")),
    "convert pftrace": Command("convert trace.pftrace -o out/x --to FORMAT", ("trace.pftrace",), (), ("perfetto",)),
    "redact": Command("convert kineto.json -o out/x.json --redact names", ("kineto.json",)),
    "replay": Command("replay plus.json --json out/x.json --chrome out/y.json --what-if kernel*0.5", ("plus.json",)),
    "replay on a network": Command("replay job.0.json --network bandwidth=25,latency=5us --json out/x.json",
                                   ("job.0.json",)),
    "measure": Command(f"measure plus.json -o out/m.json {LIMITS}", ("plus.json",), (), ("torch",)),
    "fit": Command("predict fit plus.json -o out/m.json --device-spec spec.json", ("plus.json", "spec.json")),
    "predict": Command("predict run plus.json --model model.json --json out/x.json", ("plus.json", "model.json")),
    "predict as measured": Command("predict run plus.json --model model.json --measured measured.json -o out/x.txt",
                                   ("plus.json", "measured.json")),
    "reshard": Command("reshard plus.json --tp 1 --dp 2 --zero 3 --json out/x.json -o out", ("plus.json",), (3,)),
    "reshard by a plan": Command("reshard single.json --tp 2 --use plan.json --model model.json -o out/job",
                                 ("plan.json", "single.json", "model.json"), (3,)),
    "analyze": Command("analyze kineto.json --csv out/t --full --device-spec spec.json",
                       ("kineto.json", "spec.json")),
    "analyze ET+": Command("analyze plus.json kineto.json --json --csv out/t", ("plus.json", "kineto.json")),
    "diff a limit": Command("diff kineto.json plus.json --max-regression 5%", ("kineto.json", "plus.json"), (4,)),
    "report": Command("report kineto.json -o out/r.html --device-spec spec.json", ("kineto.json", "spec.json")),
    "augment": Command("convert --augment kineto.json -o out/x.json", ("kineto.json",)),
    "why": Command("why kineto.json plus.json --json out/w.json", ("kineto.json", "plus.json")),
    "top": Command("top kineto.json plus.json --by module -o out/a.txt", ("kineto.json", "plus.json")),
    "diff": Command("diff kineto.json plus.json --json", ("kineto.json", "plus.json")),
    "check": Command("check plus.0.et --groups groups.json --json", ("plus.0.et", "groups.json"), (1,)),
    "sql": Command("sql plus.json 'select min(duration_ns) from device' -o out/x.csv", ("plus.json",), (),
                   ("duckdb",)),
    "link folder": Command("link . --manifest list.csv --output out --jobs 1 --no-progress",
                     ("et.json", "kineto.json", "list.csv"), (3,)),
    "train": Command("predict train set -o out/net.safetensors --epochs 1 --hidden 4 --json out/n.json",
                     ("set/train/a.npz", "set/valid/b.npz"), (), ("torch", "safetensors")),
    "evaluate": Command("predict evaluate set --split valid", ("set/train/a.npz", "set/valid/b.npz")),
}  # fmt: skip


def called(folder: Path, words: list[str]) -> tuple[int, str]:
    """Exit status and standard error of a command that runs in a folder."""
    with time_limit(LIMIT_S):
        done = call(*words, cwd=folder)
    return done.returncode, done.stderr.decode()


@pytest.fixture(scope="module", params=PAIRS)
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Content of each input by name; all of them are what etplus or PyTorch writes."""
    folder = tmp_path_factory.mktemp("sound")
    et, kineto = map(plain, fixture_pair(request.param))
    (folder / "et.json").write_bytes(et)
    (folder / "kineto.json").write_bytes(kineto)
    (folder / "list.csv").write_text("rank,et,kineto\n0,et.json,kineto.json\n1,none.json,kineto.json\n")
    (folder / "spec.json").write_text(json.dumps({"devices": [DEVICE]}))
    for words in (
        "link --et-file et.json --kineto-file kineto.json --output plus.json --jobs 1",
        "convert plus.json -o plus.0.et", "predict fit plus.json -o model.json",
        "link . --manifest list.csv --output job --jobs 1", "convert plus.json -o set/train/a.npz",
    ):  # fmt: skip
        (folder / "set" / "train").mkdir(parents=True, exist_ok=True)
        status, errors = called(folder, shlex.split(words))
        assert status in (0, 3), errors
    graph = (folder / "set" / "train" / "a.npz").read_bytes()
    (folder / "set" / "valid").mkdir()
    (folder / "set" / "valid" / "b.npz").write_bytes(graph)
    _add_others(folder)
    other = json.loads((folder / "plus.json").read_bytes())
    other["etplus"]["kineto"]["distributed_info"] = {"rank": 1, "world_size": 2}
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return files | {
        "other.json": json.dumps(other).encode(), "job.json": (folder / "job" / "job_report.json").read_bytes(),
        "job.0.json": files["plus.json"], "groups.json": b'{"1": [0, 1], "2": [0]}',
        "set/train/a.npz": graph, "set/valid/b.npz": graph, "job/rank0.et.json": et, "job/rank0.kineto.json": kineto,
    }  # fmt: skip


def _add_others(folder: Path) -> None:
    """Inputs that are not made of the pair: graphs and their captures, exports, a job to reshard, measured times; and,
    with PyTorch, a network."""
    launches = [("gemm", "aten::mm"), ("relu", "aten::relu")]
    kernels = [(name, 7) for name, _ in launches]
    (folder / "replay.json").write_bytes(encode(replay_events([kernels, kernels], batch=4)))
    (folder / "capture.json").write_bytes(encode(capture_events([launches], sizes=[4])))
    (folder / "nsys.et.json").write_bytes(et_of(small_export(folder / "export.sqlite"), 7))
    words = []
    recording = SHARED / "traces" / "parallel" / "mlp.single1"
    if recording.is_dir():
        pair = [str(recording / f"rank0.{side}.json.gz") for side in ("et", "kineto")]
        words += [f"link {pair[0]} {pair[1]} -o single.json", "reshard single.json --tp 2 --plan plan.json"]
    if importlib.util.find_spec("perfetto"):
        from pftraces import graph_launch

        (folder / "trace.pftrace").write_bytes(graph_launch().data())
    if importlib.util.find_spec("torch") and importlib.util.find_spec("safetensors"):
        words.append("predict train set -o net.safetensors --epochs 1 --hidden 4")
    for one in words:
        status, errors = called(folder, shlex.split(one))
        assert status in (0, 3), errors
    trace = link(folder / "et.json", folder / "kineto.json")
    calls = [one for one in dict(recorded_calls(trace)).values() if not isinstance(one, str)]
    timings = tuple(Timing(one.key, one.schema.op, "", "", 5000.0, 100.0, 9) for one in calls[:20])
    found = Measured(VERSION, ("plus.json",), Conditions("cpu", 1, "2"), timings, (), 0.5, 0.1)
    write_measured(found, folder / "measured.json")


def broken(name: str, data: bytes, rng: random.Random) -> bytes:
    """An input with something wrong; traces as in `mutations`, others by value or by bytes."""
    if name in KINETO or name in ETS:
        changed = mutate(data, "kineto" if name in KINETO else "et", rng).data
        return changed if name in ("et.json", "kineto.json") or rng.random() < 0.6 else _other_value(data, rng)
    return rng.choice([_other_value, _other_bytes] if name.endswith(".json") else [_other_bytes])(data, rng)


def _other_value(data: bytes, rng: random.Random) -> bytes:
    """A value of a JSON document, or a few, replaced or lost at any depth."""
    document = json.loads(data)
    for _ in range(rng.choice([1, 1, 3])):
        holder: Any = document
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(holder[key], (dict, list)) and holder[key] and rng.random() < 0.8:
                holder = holder[key]
                continue
            if rng.random() < 0.2:
                del holder[key]
            else:
                holder[key] = copy.deepcopy(rng.choice(_VALUES))  # the next change may be inside it
            break
    return re.sub(rf'"{_RAW}([^"]*)"', r"\1", json.dumps(document)).encode()


def _other_bytes(data: bytes, rng: random.Random) -> bytes:
    at, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    changes: list[Callable[[], bytes]] = [
        lambda: data[:at], lambda: data[at:], lambda: data[:at] + data[end:], lambda: data[:end] + data[at:],
        lambda: data[:at] + rng.randbytes(rng.choice([1, 8])) + data[at:], lambda: b"", lambda: b"\x00" * 64,
        lambda: bytes(b ^ (1 << rng.randrange(8)) if rng.random() < 3 / len(data) else b for b in data),
        lambda: gzip.compress(data, mtime=0)[: rng.choice([20, 200, 10**9])],
        lambda: data[:at] + rng.choice([b"\xff" * 9, b"=1+1", b",,", b"\n", b"9" * 30, b'"']) + data[at + 1 :],
    ]  # fmt: skip
    return rng.choice(changes)()


def files_of(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def one_case(command: Command, sound: dict[str, bytes], folder: Path, rng: random.Random) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    chosen = rng.sample(command.inputs, min(rng.choice([1, 1, 1, 2]), len(command.inputs)))
    changed = {name: broken(name, sound[name], rng) for name in chosen}
    for name, data in (sound | changed).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "out").mkdir()
    before = files_of(folder)
    words = command.words.replace("FORMAT", rng.choice(sorted(exporters()))).replace(
        "MANY", rng.choice(["chakra", "astra-sim", "chrome", "npz", "graphml"])
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        status, errors = called(folder, shlex.split(words))
    after = files_of(folder)
    about = f"{words}: {status}: {errors[-500:]}"
    assert "Traceback" not in errors and "a bug in etplus" not in errors, about
    assert not warned, f"{about}: {warned[0].message} at {warned[0].filename}:{warned[0].lineno}"
    assert {name: after.get(name) for name in before} == before, f"an input changed: {about}"
    assert status in (0, 2, *command.statuses), about
    if status == 2:
        told = [line for line in errors.splitlines() if not line.startswith(("warning: ", "linked  "))]
        assert len(told) == 1 and "error: " in told[0], about  # what other inputs were like may precede it
        assert after.keys() == before.keys(), f"{sorted(after.keys() - before.keys())} left behind: {about}"


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_broken_inputs_crash_no_command(name: str, sound: dict[str, bytes], tmp_path: Path, fuzz_cases: int) -> None:
    command = COMMANDS[name]
    for module in command.needs:
        pytest.importorskip(module, reason=f"{module} is not installed")
    if missing := set(command.inputs) - sound.keys():
        pytest.skip(f"no {sorted(missing)[0]}: real traces are not at hand")
    for case in range(-(-fuzz_cases // (len(COMMANDS) * len(PAIRS)))):
        seed = f"{name} {len(sound['et.json'])} {case}"
        try:
            one_case(command, sound, tmp_path / "case", random.Random(seed))
        except (Exception, TooSlowError) as error:
            raise AssertionError(f"case {case}") from error


def test_every_command_is_fuzzed_but_four() -> None:
    without = {"demo", "completion", "mcp", "record"}
    assert {command.words.split()[0] for command in COMMANDS.values()} == ALL_COMMANDS.keys() - without
