"""The suite for linkers: its index is true, etplus passes it in every form, and known defects of others fail it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from etplus.converters.conversion import convert
from etplus.linker import link
from support import FIXTURES, ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from linker_suite import case_of, cases, counts_of, read_output, run_case


def files(name: str) -> tuple[Path, Path]:
    case = case_of(name)
    return FIXTURES / case.et, FIXTURES / case.kineto


def test_the_index_is_what_is_known() -> None:
    for case in cases():
        for key, count in counts_of(case).items():
            assert getattr(case, key) == count, (case.name, key)


@pytest.mark.parametrize(("name", "form"), [("gpu_shaped_from_cpu", "etplus.json"), ("gpu_shaped_from_cpu", "0.et.gz"),
                                            ("train_cpu", "0.et")])  # fmt: skip
def test_etplus_passes_in_every_form(name: str, form: str, tmp_path: Path) -> None:
    trace, path = link(*files(name)), tmp_path / f"{name}.{form}"
    if form.endswith("json"):
        trace.write(path)
    else:
        convert(trace, path)
    verdicts = run_case(case_of(path.name), read_output(path))
    assert [verdict.ok for verdict in verdicts] == [True] * len(verdicts), verdicts
