"""Figures: made of real and of awkward traces, the same bytes every time."""

from __future__ import annotations

from pathlib import Path

import pytest
from etplus.analysis.summary import analyse
from etplus.converters.open import load as read_trace
from etplus.report.plots import write_plots
from traces import GPU_SHAPED, analysis_of, kernel, kineto_of, launch, op

pytest.importorskip("matplotlib", reason="matplotlib, which draws the figures, is not installed")


def test_figures(tmp_path: Path) -> None:
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        paths = write_plots(analysis_of(f"linked {GPU_SHAPED}"), folder, "x.", "svg")
        assert [path.name for path in paths][:2] == ["x.breakdown.svg", "x.operators.svg"]
        contents.append([path.read_bytes() for path in paths])
    assert contents[0] == contents[1]
    assert b"aten::" in contents[0][1]


def test_odd_names_and_lengths(tmp_path: Path) -> None:
    products = [([64, 64], "c10::Half")] * 2
    events = [
        op("aten::mm", 0, 30, products), launch(1, 5), launch(2, 50),
        kernel("gemm $x_1$ <script>&\n\0", 1, 20, 9), kernel("k" * 5000, 2, 30, 0),
    ]  # fmt: skip
    analysis = analyse(read_trace(kineto_of(events)))
    paths = write_plots(analysis, tmp_path, kind="svg")
    assert [path.stem for path in paths] == ["breakdown", "operators", "roofline"]
    assert b"<script" not in (tmp_path / "operators.svg").read_bytes()
    assert all(path.stat().st_size > 5000 for path in write_plots(analysis, tmp_path, kind="png"))


def test_nothing_to_draw(tmp_path: Path) -> None:
    assert write_plots(analyse(read_trace(kineto_of([op("aten::mm", 0, 9)]))), tmp_path) == []
