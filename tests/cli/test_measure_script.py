"""Which call etplus measure --script takes, and what it refuses; what its scripts do is tested where PyTorch is."""

import ast
from pathlib import Path

import numpy as np
import pytest
from support import call, linked

NAME = "pairs/gpu_shaped_from_cpu"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with p.json, an ET+ file."""
    linked(NAME).write(tmp_path / "p.json")
    return tmp_path


def repro(folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit status, what was said, and the script."""
    (folder / "r.py").unlink(missing_ok=True)
    done = call("measure", "p.json", "-o", "r.py", *words, cwd=folder)
    assert done.stdout == b""
    script = (folder / "r.py").read_text() if done.returncode == 0 else ""
    ast.parse(script)
    return done.returncode, done.stderr.decode(), script


def test_a_script_for_a_name_takes_its_longest_call(folder: Path) -> None:
    status, said, script = repro(folder, "--script", "aten::addmm")
    assert (status, said) == (0, "wrote r.py: aten::addmm\n") and "aten::addmm" in script and "p.json" in script
    trace = linked(NAME)
    at = np.flatnonzero(trace.calls.name == trace.names.index("aten::addmm"))
    took = (trace.calls.end - trace.calls.ts)[at]
    assert len(at) > 1 and f"\nRECORDED_US = {took.max() / 1000!s}\n" in script
    longest = trace.nodes.id[trace.calls.source[at[np.argmax(took)]]]
    assert repro(folder, "--script", str(longest)) == (0, said, script)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--script", "none"), "p.json: no call with the ID or name 'none'; `etplus analyze` lists operators"),
        (("--script", "999999999"),
         "p.json: no call with the ID or name '999999999'; `etplus analyze` lists operators"),
        (("--script", "9" * 18), f"p.json: no call with the ID or name '{'9' * 18}'; `etplus analyze` lists operators"),
        (("--script", "9" * 19), f"p.json: no call with the ID or name '{'9' * 19}'; `etplus analyze` lists operators"),
        (
            ("--script", "3"),
            "p.json: '3' cannot be called: only operators with a schema can be called; "
            "`etplus analyze` lists operators",
        ),
        (("--script", "aten::mm", "--max-bytes", "271"), "p.json: 'aten::mm' needs 272 bytes, over --max-bytes"),
    ],
)  # fmt: skip
def test_names_that_cannot_be_called_are_refused(words: tuple[str, ...], said: str, folder: Path) -> None:
    assert repro(folder, *words) == (2, f"etplus: error: {said}\n", "")


def test_exactly_enough_memory_passes_and_pytorch_decides_threads_by_default(folder: Path) -> None:
    assert repro(folder, "--script", "aten::mm", "--max-bytes", "272")[0] == 0
    plain, default, two = (
        repro(folder, "--script", "aten::mm", *more)[2] for more in ((), ("--threads", "0"), ("--threads", "2"))
    )
    assert plain == default == two.replace("    torch.set_num_threads(2)\n", "") != two


def test_a_script_from_two_traces_is_refused(folder: Path) -> None:
    done = call("measure", "p.json", "p.json", "--script", "aten::mm", "-o", "r.py", cwd=folder)
    assert done.returncode == 2 and b"2 traces given; pass only the trace that has the operator" in done.stderr
