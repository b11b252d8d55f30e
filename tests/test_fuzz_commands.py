"""Broken inputs through every command: no traceback, no input changed, one line and nothing written on refusal.

Some run with the suite; `pytest tests/test_fuzz_commands.py --fuzz-cases 5000` runs so many over all commands.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from etplus.cli.parser import COMMANDS as ALL_COMMANDS
from etplus.converters.registry import exporters
from mutations import mutate
from support import TooSlowError, call, fixture_pair, plain, time_limit

PAIRS = ("pairs/one_of_n", "pairs/gpu_shaped_from_cpu")
LIMIT_S = 60
_RAW = "@raw:"
_VALUES: tuple[Any, ...] = (
    None, True, "", "x", "7", [], {}, [1], [[]], {"a": 1}, 0, -1, 1.5, 2**63, 2**64, -(2**70),
    f"{_RAW}1e400", f"{_RAW}NaN",
)  # fmt: skip


DEVICE = {"name": "Our GPU", "aliases": ["RTX"], "tflops": {"float32": 13.4}, "memory_gb_s": 616, "l2_bytes": 10**6}


class Command(NamedTuple):
    """A command line, the inputs of it that are broken, its outputs, and its exit statuses beside 0 and 2."""

    words: str
    inputs: tuple[str, ...]
    statuses: tuple[int, ...] = ()


COMMANDS = {
    "link": Command("link --et-file et.json --kineto-file kineto.json --output out/x.json --report out/r.json --jobs 1",
                    ("et.json", "kineto.json"), (3,)),
    "link --renumber": Command("link --et-file et.json --kineto-file kineto.json --output out/x.json.gz --renumber "
                               "--data-dependencies --jobs 1", ("et.json", "kineto.json"), (3,)),
    "link to .et": Command("link --kineto-file kineto.json --output out/x.et", ("kineto.json",)),
    "convert": Command("convert plus.json -o out/x --to FORMAT", ("plus.json",)),
    "convert .et": Command("convert plus.0.et -o out/x --to FORMAT", ("plus.0.et",)),
    "convert ranks": Command("convert plus.json other.json -o out/x --to MANY --job job.json",
                             ("plus.json", "other.json", "job.json")),
    "redact": Command("redact kineto.json -o out/x.json --hosts --users --paths", ("kineto.json",)),
    "redact ET+": Command("redact plus.json -o out/x.json.gz", ("plus.json",)),
    "replay": Command("replay plus.json --json out/x.json --chrome out/y.json --what-if kernel*0.5", ("plus.json",)),
    "replay ranks": Command("replay plus.json plus.0.et --rank-couple --json out/x.json", ("plus.json", "plus.0.et")),
    "replay an iteration": Command("replay plus.json --predict-iteration all --json out/x.json", ("plus.json",)),
    "fit": Command("fit plus.json -o out/m.json --device-spec spec.json", ("plus.json", "spec.json")),
    "predict": Command("predict plus.json --model model.json --json out/x.json", ("plus.json", "model.json")),
    "predict by overheads": Command("predict plus.json --model model.json --engine overheads --set batch=4:8 "
                                    "--json out/x.json", ("plus.json", "model.json")),
    "reshard": Command("reshard plus.json --tp 1 --dp 2 --zero 3 --json out/x.json -o out", ("plus.json",)),
    "analyze": Command("analyze kineto.json --csv out/t --overheads out/o.json --device-spec spec.json",
                       ("kineto.json", "spec.json")),
    "analyze ET+": Command("analyze plus.json kineto.json --json --by-shape --csv out/t", ("plus.json", "kineto.json")),
    "report": Command("report kineto.json -o out/r.html --device-spec spec.json", ("kineto.json", "spec.json")),
    "report ET+": Command("report plus.json other.json -o out/r.html", ("plus.json", "other.json")),
    "augment": Command("augment kineto.json out/x.json", ("kineto.json",)),
    "augment ET+": Command("augment plus.json out/x.json.gz", ("plus.json",)),
    "diff": Command("diff kineto.json plus.json --json", ("kineto.json", "plus.json")),
    "check": Command("check plus.0.et --groups groups.json --json", ("plus.0.et", "groups.json"), (1,)),
    "batch": Command("batch . --manifest list.csv --output out --jobs 1 --no-progress",
                     ("et.json", "kineto.json", "list.csv"), (3,)),
    "repro": Command("repro plus.json --op ProfilerStep#3 --subtree -o out/x.py", ("plus.json",)),
    "evaluate": Command("evaluate set --split valid", ("set/train/a.npz", "set/valid/b.npz")),
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
        "convert plus.json -o plus.0.et", "fit plus.json -o model.json --no-table",
        "batch . --manifest list.csv --output job --jobs 1", "convert plus.json -o set/train/a.npz",
    ):  # fmt: skip
        (folder / "set" / "train").mkdir(parents=True, exist_ok=True)
        status, errors = called(folder, words.split())
        assert status in (0, 3), errors
    other = json.loads((folder / "plus.json").read_bytes())
    other["etplus"]["kineto"]["distributed_info"] = {"rank": 1, "world_size": 2}
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    graph = (folder / "set" / "train" / "a.npz").read_bytes()
    return files | {
        "other.json": json.dumps(other).encode(), "job.json": (folder / "job" / "job_report.json").read_bytes(),
        "groups.json": b'{"1": [0, 1], "2": [0]}', "set/train/a.npz": graph, "set/valid/b.npz": graph,
    }  # fmt: skip


def broken(name: str, data: bytes, rng: random.Random) -> bytes:
    """An input with something wrong; traces as in `mutations`, others by value or by bytes."""
    if name in ("et.json", "kineto.json", "plus.json", "other.json"):
        changed = mutate(data, "kineto" if name == "kineto.json" else "et", rng).data
        return changed if name in ("et.json", "kineto.json") or rng.random() < 0.6 else _other_value(data, rng)
    change = rng.choice([_other_value, _other_bytes] if name.endswith(".json") else [_other_bytes])
    return change(data, rng)


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
    text = json.dumps(document)
    for raw in ("1e400", "NaN"):
        text = text.replace(f'"{_RAW}{raw}"', raw)
    return text.encode()


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
        status, errors = called(folder, words.split())
    after = files_of(folder)
    about = f"{words}: {status}: {errors[-500:]}"
    assert "Traceback" not in errors and "a bug in etplus" not in errors, about
    assert not warned, f"{about}: {warned[0].message} at {warned[0].filename}:{warned[0].lineno}"
    assert {name: after.get(name) for name in before} == before, f"an input changed: {about}"
    assert status in (0, 2, *command.statuses), about
    if status == 2:
        assert errors.count("\n") == 1 and "error: " in errors, about
        assert after.keys() == before.keys(), f"{sorted(after.keys() - before.keys())} left behind: {about}"


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_broken_inputs(name: str, sound: dict[str, bytes], tmp_path: Path, fuzz_cases: int) -> None:
    command = COMMANDS[name]
    for case in range(-(-fuzz_cases // (len(COMMANDS) * len(PAIRS)))):
        seed = f"{name} {len(sound['et.json'])} {case}"
        try:
            one_case(command, sound, tmp_path / "case", random.Random(seed))
        except (Exception, TooSlowError) as error:
            raise AssertionError(f"case {case}") from error


def test_every_command_is_in_it() -> None:
    """Those that read no trace, or need PyTorch, apart."""
    assert {command.words.split()[0] for command in COMMANDS.values()} == ALL_COMMANDS.keys() - {
        "demo",
        "measure",
        "train",
        "completion",
    }
