"""What etplus report prints."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from made_traces import kernel, kineto_of, launch, op
from support import ROOT, call

GPU_SHAPED = ROOT / "fixtures" / "pairs" / "gpu_shaped_from_cpu.kineto.json.gz"


def test_a_page_of_one_trace_and_of_two(tmp_path: Path) -> None:
    """It goes to a file, of which a line tells, or to standard output, with nothing else; of several the job is
    checked, and what is odd is told."""
    for name, dur in (("a.json", 10), ("b.json", 11)):
        events = [op("aten::mm", 0, 20), launch(1, 5, 2), kernel("gemm", 1, 30, dur)]
        (tmp_path / name).write_bytes(kineto_of(events))
    printed = call("report", "a.json", "-o", "-", "--title", "<T>", cwd=tmp_path)
    written = call("report", "a.json", "-o", "p.html", "--title", "<T>", cwd=tmp_path)
    page = (tmp_path / "p.html").read_bytes()
    assert printed.stdout == page and printed.stderr == b"" and written.stdout == b""
    assert b"<title>&lt;T&gt; " in page and b"<T>" not in page
    size = f"wrote   p.html ({len(page) / 1e6:.1f} MB)\n"
    assert written.stderr.decode() == size and (printed.returncode, written.returncode) == (0, 0)
    two = call("report", "a.json", "b.json", cwd=tmp_path)
    told = "warning: 2 of 2 traces do not record their rank (distributedInfo), first a.json: it is unknown"
    assert two.stderr.decode() == f"{told} whether they all come from one job\n{size.replace('p.html', 'report.html')}"
    assert b"<title>Job of 2 ranks " in (tmp_path / "report.html").read_bytes()


def test_commands_of_the_page_run_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "my traces").mkdir()
    (tmp_path / "pages").mkdir()
    shutil.copy(GPU_SHAPED, tmp_path / "my traces" / "a.json.gz")
    assert not call("report", "my traces/a.json.gz", "-o", "pages/p.html", "--steps", "1", cwd=tmp_path).returncode
    text = (tmp_path / "pages" / "p.html").read_text()
    found = json.loads(text.split('type="application/json">')[1].split("</script>")[0])["findings"]["found"]
    commands = {proof["command"] for one in found for proof in one["evidence"]} | {one["command"] for one in found}
    assert any("--what-if" in command for command in commands), commands
    for command in filter(None, commands):
        name, *words = shlex.split(command)
        assert name == "etplus" and "../my traces/a.json.gz" in words and "--steps=1" in words, command
        done = call(*words, cwd=tmp_path / "pages")
        assert done.returncode == 0, (command, done.stderr)
    for one in (one for one in found if one["command"]):
        told = json.loads(call(*shlex.split(one["command"])[1:], "--json", "-", cwd=tmp_path / "pages").stdout)[
            "what_if"
        ]
        assert told["before_ns"] - told["after_ns"] == pytest.approx(one["gain"]["replayed_ns"], rel=0.02)


def test_commands_of_a_comparison_run_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    for name, dur in (("a.json", 100), ("b.json", 900)):
        events = [op("aten::mm", 0, 20), launch(1, 5, 2), kernel("gemm", 1, 30, dur)]
        (tmp_path / name).write_bytes(kineto_of(events))
    assert not call("diff", "a.json", "b.json", "-o", "pages/p.html", "--total", cwd=tmp_path).returncode
    assert "etplus diff ../a.json ../b.json --total --full" in (tmp_path / "pages" / "p.html").read_text()
    assert not call("diff", "../a.json", "../b.json", "--total", "--full", cwd=tmp_path / "pages").returncode
