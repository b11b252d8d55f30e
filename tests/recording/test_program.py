"""A program with recorders in its processes: its environment, its end, and what is said of its recordings."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from etplus.recording import program
from etplus.recording.program import Recorded, RecordingWindow, record_program
from etplus.trace.errors import UsageError
from support import names_in

STEPS, SECONDS = RecordingWindow(2, 4), RecordingWindow(1, 1, by_time=True)
WRITE = """
import json, os, pathlib
plan = json.loads(os.environ["ETPLUS_RECORD"])
folder = pathlib.Path(plan["folder"])
for number, (stem, state) in enumerate(STATES.items()):
    (folder / f"{stem.partition('.')[0]}.status.json").write_text(json.dumps(state))
    for what in ("et", "kineto"):
        (folder / f"{stem}.{what}.json").write_text('"aten::mm"' * number)
raise SystemExit(3)
"""


def recorded(folder: Path, states: dict[str, Any], plan: RecordingWindow = STEPS) -> Recorded:
    script = folder / "program.py"
    script.write_text(f"STATES = {states!r}\n{WRITE}")
    return record_program(["python3", "-I", str(script)], folder, plan)


def test_traces_are_named_after_their_ranks(tmp_path: Path) -> None:
    done = {"state": "recorded", "torch": "2.14.0"}
    found = recorded(tmp_path, {"7": {**done, "rank": 1}, "9": {**done, "rank": 0}, "8": {"state": "waiting"}})
    assert found == Recorded(3, (0, 1), (), True)
    names = [f"rank-{rank}.{what}.json.gz" for rank in (0, 1) for what in ("et", "kineto")]
    assert names_in(tmp_path) == ["program.py", *names]


def test_seconds_are_taken_where_no_step_was_seen(tmp_path: Path) -> None:
    plan, state = RecordingWindow(2, 4, otherwise=(0.5, 3)), {"state": "waiting", "steps": 0, "otherwise": True}
    states = {f"{pid}.time": {**state, "rank": rank} for pid, rank in ((5, 0), (6, 0), (7, 1), (4, 2))}
    states["4.time"]["otherwise"] = False
    found = recorded(tmp_path, states, plan)
    assert (found.status, found.ranks, found.call_lines) == (3, (0, 1), False)
    (note,) = found.notes
    assert "seconds 0.5-3" in note and note.startswith("no Python process")


def test_a_program_that_ends_and_one_that_cannot_be_started(tmp_path: Path) -> None:
    assert [program._run(["sh", "-c", text], dict(os.environ)) for text in ("exit 3", "kill -9 $$", ":")] == [3, 137, 0]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    with pytest.raises(UsageError, match=r"^nonesuch: cannot be started \(No such file or directory\); check"):
        record_program(["nonesuch"], tmp_path, STEPS)
    assert [*tmp_path.iterdir()] == []
    assert program._run(["sh", "-c", "kill -TERM $PPID; sleep 5"], dict(os.environ)) == 128 + signal.SIGTERM


def test_the_environment_of_a_program_carries_hook_and_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    plan = RecordingWindow(2, 4, otherwise=(5, 6))
    found = program._environment(Path("x"), plan)
    assert found["PYTHONPATH"] == str(program._HOOK) and found.keys() >= os.environ.keys()
    assert json.loads(found["ETPLUS_RECORD"]) == {"folder": "x", "steps": [2, 4], "otherwise": [5, 6]}
    monkeypatch.setenv("PYTHONPATH", "own")
    found = program._environment(Path("x"), RecordingWindow(1, 3, by_time=True, otherwise=(5, 6)))
    assert found["PYTHONPATH"] == f"{program._HOOK}{os.pathsep}own"
    assert json.loads(found["ETPLUS_RECORD"]) == {"folder": "x", "seconds": [1, 3]}
    assert (plan.text, SECONDS.text, RecordingWindow(0.5, 2).text) == ("2-4", "1", "0.5-2")


@pytest.mark.parametrize(
    ("state", "plan", "note"),
    [({"state": "recorded", "cut": True, "steps": 3}, STEPS, "ended in step 3, before step 4 was over; the recorded"),
     ({"state": "recorded", "cut": True, "signal": 15}, SECONDS, "was stopped by signal 15 before second 1; the"),
     ({"state": "recording", "signal": 15}, STEPS, "was stopped by signal 15 in a call that did not return"),
     ({"state": "recording"}, STEPS, "the process was killed in the window"), ({"state": "waiting"}, STEPS, ""),
     ({"state": "failed", "reason": "why"}, STEPS, "rank 5: why"), ({"state": "recorded", "cut": False}, STEPS, "")],
)  # fmt: skip
def test_processes_that_recorded_too_little_say_why(state: dict[str, Any], plan: RecordingWindow, note: str) -> None:
    said = program._shortfall({"rank": 5, **state}, plan)
    assert note in said and bool(said) == bool(note) and (not said or said.startswith("rank 5: "))
    assert program._shortfall({"state": "failed", "reason": "why"}, plan) == "why"


def test_the_message_explains_why_nothing_was_recorded(tmp_path: Path) -> None:
    assert "without -I, -E and -S" in program._nothing(tmp_path, [], STEPS)
    (tmp_path / "started").touch()
    assert program._nothing(tmp_path, [], STEPS) == "PyTorch was not imported"
    states = [{"steps": 0, "kind": ""}, {"steps": 1, "kind": "forward passes"}]
    assert "ended before second 1 after" in program._nothing(tmp_path, states, SECONDS)
    assert "no step was seen" in program._nothing(tmp_path, states[:1], STEPS)
    assert "ended after 1 forward passes, but the window is 2-4" in program._nothing(tmp_path, states, STEPS)
    assert [program._has_call_lines(one) for one in ("2.14.0", "2.13.9", "3.0", "1.15", "dev")] == [
        True, False, True, False, False,
    ]  # fmt: skip


def test_a_status_that_was_cut_off_is_none(tmp_path: Path) -> None:
    (tmp_path / "5.status.json").write_text('{"state": "wai')
    (tmp_path / "6.status.json").write_text('{"state": "waiting"}')
    assert program._processes(tmp_path) == {"6": {"state": "waiting"}}
