"""The suite for linkers: its index is true, and etplus passes it."""

import sys
from pathlib import Path

import pytest
from etplus.converters.conversion import convert
from etplus.linker import link
from support import FIXTURES, ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from linker_suite import case_of, cases, counts_of, read_output, run_case


def test_the_index_has_the_true_counts_of_each_case() -> None:
    for case in cases():
        for key, count in counts_of(case).items():
            assert getattr(case, key) == count, (case.name, key)


@pytest.mark.parametrize("form", ["etplus.json", "0.et.gz"])
def test_files_that_etplus_writes_pass_the_suite(form: str, tmp_path: Path) -> None:
    case, path = case_of("gpu_shaped_from_cpu"), tmp_path / f"gpu_shaped_from_cpu.{form}"
    convert(link(FIXTURES / case.et, FIXTURES / case.kineto), path)
    verdicts = run_case(case, read_output(path))
    assert [verdict.ok for verdict in verdicts] == [True] * len(verdicts), verdicts
