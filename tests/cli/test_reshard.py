"""Options of etplus reshard, and its text of a report."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from etplus.cli import reshard as module
from support import call, linked, refused


@pytest.mark.parametrize(
    ("ranks", "message"), [("a", "must be a list of ranks"), ("8", "the layout has ranks 0 to 7"), ("0-8", "0 to 7")]
)
def test_ranks_that_the_layout_lacks_are_refused(ranks: str, message: str) -> None:
    assert message in refused("reshard", "none.json", "--tp", "2", "--dp", "4", "--ranks", ranks)


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        ("--dp 64", [*range(64)]), ("--dp 65", [0]), ("--dp 64 --representative", [0]),
        ("--dp 65 --ranks 0,63-64", [0, 63, 64]),
    ],
)  # fmt: skip
def test_all_ranks_are_written_up_to_64(
    options: str, ranks: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(
        _job: Any, found: list[int], output: str, to: str | None, report: dict[str, Any], _network: Any
    ) -> list[str]:
        asked.append((found, output, to, "written" in report))
        return ["x"] * len(found)

    asked: list[Any] = []
    monkeypatch.setattr(module, "_write", write)
    linked("pairs/gpu_shaped_from_cpu").write(tmp_path / "plus.json")
    done = call("reshard", "plus.json", *options.split(), "-o", "out", "--json", "n.json", cwd=tmp_path)
    assert done.returncode == 0 and asked == [(ranks, "out", None, False)], done.stderr
    assert f"wrote   {len(ranks)} files: x ...".encode() in done.stdout
    assert call("reshard", "plus.json", "--dp", "2", cwd=tmp_path).returncode == 0 and len(asked) == 1


@pytest.mark.parametrize(
    ("to", "ranks", "network", "more"),
    [
        ("astra-sim", [0, 1], None, {}), ("astra-sim", [0, 2], None, {"renumber_ranks": True}),
        ("astra-sim", [0], "n", {"network": "n"}), ("chakra", [0, 2], "n", {}),
    ],
)  # fmt: skip
def test_options_of_the_conversion_are_passed_on(
    to: str, ranks: list[int], network: str | None, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(traces: list[str], output: str, **options: Any) -> Any:
        assert (traces, output) == ([f"trace {rank}" for rank in ranks], "out")
        assert options == {"to": to, "as_prefix": True, **more}
        return SimpleNamespace(notes=(), files=("a", "b"))

    monkeypatch.setattr(module, "convert", convert)
    job: Any = SimpleNamespace(trace=lambda rank: f"trace {rank}")
    assert module._write(job, ranks, "out", to, {}, network) == ["a", "b"]


def test_evidence_tells_the_proof_experts_and_gradients() -> None:
    experts = {"count": 64, "layers": 2, "top": 8, "on_a_rank": 16, "tokens": "uniform", "assumed": True}
    gradients = [{"stage": at, "communicated": 2000 + at, "parameters": 1000, "padding": 24 * at} for at in range(2)]
    apart = [{"rank": at, "operators": 3, "communications": at} for at in range(5)]
    report: dict[str, Any] = {
        "scaling": "strong", "layout": {"ep": 4}, "experts": experts, "gradients": gradients, "assumptions": ["x"],
        "parameters": {"count": 2, "elements": 9, "buffers": 3, "buffers_found_by": "b", "found_by": "shapes"},
        "proof": {"ranks": [0, 1], "equal": False, "operators": 7, "communications": 1, "different": apart,
                  "missing_share": 0.25, "other_communications": ["c", "d"]},
    }  # fmt: skip
    assert module._evidence(report) == [
        "batch   strong", "model   2 parameters of 9 elements, by shape; 3 buffers (b)",
        "experts 64 in 2 layers, 8 per token, 16 on each of 4 ranks; as many tokens for each (assumed)",
        "proof   2 recorded ranks derived from themselves are NOT equal: 25.0% of the time of 7 operators and "
        "1 communications is missing; c",
        *(f"proof   the derived trace of rank {at} differs from its recording in 3 operators and {at} communications"
          for at in range(4)),
        "grads   2,000 elements communicated of stage 0, 1,000 of parameters",
        "grads   2,001 elements communicated of stage 1, 1,000 of parameters and 24 of padding", "assumes x",
    ]  # fmt: skip
    report |= {"layout": {"ep": 1}, "gradients": gradients[:1]}
    report["experts"] |= {"tokens": "recorded", "assumed": False}
    lines = module._evidence(report)
    assert lines[2] == "experts 64 in 2 layers, 8 per token on each rank; tokens as recorded, in proportion"
    assert "grads   2,000 elements communicated, 1,000 of parameters" in lines
