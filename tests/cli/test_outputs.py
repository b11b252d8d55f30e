"""No command replaces a file that it reads, whatever the output is called; outputs appear together or not at all."""

import gzip
import hashlib
import os
import re
import shutil
import stat
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from etplus.cli.outputs import first_screen
from made_traces import kineto_of, op
from support import call, command, fixture_pair, on_terminal, plain, read_json, refused, succeeds

ET, KINETO = fixture_pair("pairs/gpu_shaped_from_cpu")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One input of each kind."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "et.json").write_bytes(plain(ET))
    (folder / "kineto.json").write_bytes(plain(KINETO))
    for words in (
        "link et.json kineto.json --output plus.json --jobs 1", "convert plus.json -o plus.0.et",
        "predict fit plus.json -o model.json",
    ):  # fmt: skip
        succeeds(*words.split(), cwd=folder)
    (folder / "spec.json").write_bytes(b'{"devices": []}')
    return folder


@pytest.fixture
def inputs(sources: Path, tmp_path: Path) -> Path:
    """A copy of `sources`."""
    shutil.copytree(sources, tmp_path / "in")
    return tmp_path / "in"


def sums(folder: Path) -> dict[str, str]:
    """Checksum, inode and mode of every file below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = f"{status.st_ino} {status.st_mode:o} {digest}"
    return found


def leaves_inputs(folder: Path, *arguments: str, message: str = "would replace") -> None:
    before = sums(folder)
    assert message in refused(*arguments, cwd=folder)
    assert sums(folder) == before


CASES = (
    "link --et-file et.json --kineto-file kineto.json --output et.json",
    "link --et-file et.json --kineto-file kineto.json --output kineto.json",
    "link --et-file et.json --kineto-file kineto.json --output new.json --report kineto.json",
    "link --kineto-file kineto.json --output kineto.json", "convert plus.json -o plus.json --to chrome",
    "convert plus.json plus.0.et -o plus.0.et --to chrome", "convert plus.0.et -o plus --to astra-sim --replicate 2",
    "replay plus.json --json plus.json", "replay plus.0.et --chrome plus.0.et", "predict fit plus.json -o plus.json",
    "predict fit plus.json --device-spec spec.json -o spec.json",
    "predict run plus.json --model model.json --json model.json", "analyze plus.json kineto.json --json plus.json",
    "report kineto.json plus.json -o plus.json", "convert --augment kineto.json -o kineto.json",
    "convert --augment plus.json -o spec.json --device-spec spec.json", "analyze tables/kernels.csv --csv tables",
)  # fmt: skip


def test_no_output_replaces_an_input(inputs: Path) -> None:
    (inputs / "tables").mkdir()
    shutil.copy(inputs / "kineto.json", inputs / "tables" / "kernels.csv")
    for words in CASES:
        leaves_inputs(inputs, *words.split())


def test_an_input_is_known_by_what_it_is(inputs: Path) -> None:
    (inputs / "symbolic.json").symlink_to("plus.json")
    os.link(inputs / "plus.json", inputs / "hard.json")
    (inputs / "again").symlink_to(".")
    for output in ("symbolic.json", "hard.json", "../in/./plus.json", "again/plus.json"):
        leaves_inputs(inputs, "replay", "plus.json", "--json", output)
    leaves_inputs(inputs, "replay", "symbolic.json", "--json", "plus.json")


def test_batch_replaces_no_trace_and_no_manifest(inputs: Path) -> None:
    (inputs / "out").mkdir()
    for taken in ("rank_0.etplus.json.gz", "job_report.json"):
        (inputs / "out" / taken).write_bytes(gzip.compress((inputs / "et.json").read_bytes()))
        (inputs / "list.csv").write_text(f"rank,et,kineto\n0,out/{taken},kineto.json\n")
        leaves_inputs(inputs, *"link . --manifest list.csv --output out --jobs 1".split())
    (inputs / "out" / "job_report.txt").write_text("rank,et,kineto\n0,et.json,kineto.json\n")
    leaves_inputs(inputs, *"link . --manifest out/job_report.txt --output out".split())


def test_two_outputs_of_one_name_and_empty_names(inputs: Path) -> None:
    for words in ("replay plus.json --json same.json --chrome ./same.json",
                  "link --et-file et.json --kineto-file kineto.json --output same.json --report same.json",
                  "analyze kineto.json --csv same --json same/kernels.csv"):  # fmt: skip
        leaves_inputs(inputs, *words.split(), message="two outputs have this name")
    leaves_inputs(inputs, *["replay", "plus.json", "--json", "-", "--chrome", "-"], message="standard output")
    for words in ("link kineto.json --output", "link kineto.json --output new.json --report", "link . --output",
                  "convert plus.json --to chrome -o", "replay plus.json --json", "predict fit plus.json -o",
                  "analyze kineto.json --csv", "report kineto.json -o", "demo --output"):  # fmt: skip
        leaves_inputs(inputs, *words.split(), "", message="is empty")


def test_a_command_that_fails_midway_leaves_nothing(inputs: Path) -> None:
    (inputs / "broken.json").write_bytes(b'{"traceEvents": []}')
    leaves_inputs(inputs, *["analyze", "kineto.json", "broken.json", "--csv", "a/c"], message="broken.json")


def test_a_replaced_output_keeps_its_permissions(inputs: Path) -> None:
    for mode in (0o600, 0o664, 0o755):
        (inputs / "out.json").write_bytes(b"old")
        (inputs / "out.json").chmod(mode)
        succeeds("convert", "--augment", "kineto.json", "-o", "out.json", cwd=inputs)
        assert stat.S_IMODE((inputs / "out.json").stat().st_mode) == mode
        assert read_json(inputs / "out.json")["traceEvents"]


def test_cells_of_tables_that_look_like_formulas_are_escaped(tmp_path: Path) -> None:
    names = ["=1+1", "+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "aten::mm", "a=b", " =2+2", ";=3+3", "a; =4+4", "＝5+5"]
    names += ["|cmd", "\u200b=6+6", "\ufeff@SUM(7)", "\u00a0-8+8", "a\t+9+9", "－1"]
    (tmp_path / "=trace.json").write_bytes(kineto_of([op(name, 10 * i, 5) for i, name in enumerate(names)]))
    succeeds("analyze", "--full", "=trace.json", "--csv", "tables", cwd=tmp_path)
    text = "".join(path.read_bytes().decode() for path in (tmp_path / "tables").iterdir())
    assert "'=1+1" in text and "'=trace.json" in text and ",aten::mm," in text
    cells = [cell.strip('"') for line in text.split("\n") for cell in re.split(r"[,;\t\r]", line)]
    seen = [unicodedata.normalize("NFKC", cell).strip().strip("\u200b\ufeff ") for cell in cells]
    dangerous = [cell for cell in seen if cell.startswith(("=", "+", "-", "@", "|"))]
    assert len(dangerous) < len(cells) / 2 and all(np.isfinite(float(cell)) for cell in dangerous)


STEERING = "a\x9b2J\x1b[2Jb\u202ec\u2028d\u2029e\u200bf\u2066g\ufeffh\x7fi\U000e0041j\rk"


def test_terminals_and_texts_get_no_control_characters(tmp_path: Path) -> None:
    trace = kineto_of([op(STEERING, 1, 5)])
    (tmp_path / "trace.json").write_bytes(trace)
    (job := tmp_path / "job").mkdir()
    (job / "rank-0\u202e.kineto.json").write_bytes(trace)
    shown = on_terminal([*command("etplus"), "link", "job"], tmp_path).decode()
    plain = re.sub(r"\x1b\[[01;3]*m", "", shown).replace("\r\n", "").replace("\n", "").replace("\r", "")
    assert plain.isprintable(), [c for c in plain if not c.isprintable()]
    succeeds("analyze", "trace.json", "--json", "numbers.json", cwd=tmp_path)
    assert "\x9b2J" in (tmp_path / "numbers.json").read_text(encoding="utf-8")
    succeeds("analyze", "--full", "trace.json", "-o", "tables.txt", cwd=tmp_path)
    assert (tmp_path / "tables.txt").read_text(encoding="utf-8").replace("\n", "").isprintable()


def test_a_manifest_escapes_formulas_and_is_read_back(tmp_path: Path) -> None:
    for name, source in (("a;=1+rank-0.et.json.gz", ET), ("＝a;@rank-0.kineto.json.gz", KINETO)):
        shutil.copy(source, tmp_path / name)
    listed = call("link", ".", "--dry-run", cwd=tmp_path)
    assert listed.stdout.decode().splitlines()[1] == "0,a;'=1+rank-0.et.json.gz,./＝a;'@rank-0.kineto.json.gz"
    (tmp_path / "list.csv").write_bytes(listed.stdout)
    done = call("link", ".", "--manifest", "list.csv", "--jobs", "1", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "etplus" / "rank_0.etplus.json.gz").exists(), done.stderr


def test_a_screen_has_24_lines_and_says_how_many_follow() -> None:
    text = "\n".join(map(str, range(23)))
    assert first_screen(text) == text
    lines = first_screen(f"{text}\n23").split("\n")
    assert lines[:22] == text.split("\n")[:22] and lines[22:] == ["… 2 more lines; --full prints all"]
    blank = first_screen("\n".join(["a"] * 20 + [""] * 1004)).split("\n")
    assert blank[20:] == ["… 1,002 more lines; --full prints all"]
