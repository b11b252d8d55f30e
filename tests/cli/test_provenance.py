"""What the compiler says of its kernels, in trace-link, batch, analyze and report."""

import shutil
from pathlib import Path

from compiled_programs import files, kernels
from support import FIXTURES, assert_valid, read_json, refused, succeeds

ET, KINETO = files(FIXTURES / "compiled" / "other")
INFORMATION = FIXTURES / "compiled" / "other.kernel_information.json.gz"
KERNELS = len(kernels(FIXTURES / "compiled" / "other"))


def test_trace_link_finds_the_files_beside_the_trace(tmp_path: Path) -> None:
    done = succeeds("link", ET, KINETO, "-o", "out.json", "--json", "r.json", cwd=tmp_path)
    said = f"source of {KERNELS} kernels in 2 of 2 calls of compiled graphs, by other.kernel_information.json.gz"
    assert said in " ".join(done.stderr.decode().split())
    document = read_json(tmp_path / "out.json")
    assert_valid(document)
    assert document["etplus"]["compiled"] == read_json(tmp_path / "r.json")["compiled"]
    assert len(document["generated_kernels"]["id"]) == document["etplus"]["compiled"]["kernels"] == KERNELS


def test_a_bad_provenance_file_fails_with_one_line(tmp_path: Path) -> None:
    shutil.copy(INFORMATION, tmp_path / "in.json")
    for given, output in (("none.json", "out.json"), (KINETO, "out.json"), ("in.json", "in.json")):
        assert Path(given).name in refused("link", ET, KINETO, "--provenance", given, "-o", output, cwd=tmp_path)
    assert not (tmp_path / "out.json").exists()
