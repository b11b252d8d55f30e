"""Commands give the same bytes from ET+ JSON and from columns of every timeline and job.

A file of its own, so that it runs beside the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from columns_equality import COMMANDS, JOB_COMMANDS, assert_equal, some_of
from etplus import link, load
from support import SHARED, gpu_traces, shared_pair

TRACES = SHARED / "traces"


@pytest.mark.slow
@pytest.mark.parametrize("path", gpu_traces("gpu-kineto", "python-stacks", "serving", "graph-capture"))
def test_of_every_timeline(path: Path, tmp_path: Path) -> None:
    assert_equal({"x.json": load(path)}, tmp_path, some_of(COMMANDS, path.name, 2))


def _jobs() -> list[str]:
    folders = [*TRACES.glob("parallel/*"), *TRACES.glob("network/*/*"), *TRACES.glob("network/gloo-2")]
    return sorted(str(folder.relative_to(TRACES)) for folder in folders if len(list(folder.glob("rank*.et.json*"))) > 1)


@pytest.mark.slow
@pytest.mark.parametrize("job", _jobs())
def test_of_every_job(job: str, tmp_path: Path) -> None:
    folder = TRACES / job
    traces = {}
    for et in sorted(folder.glob("rank*.et.json*")):
        name = et.name.partition(".")[0]
        traces[f"{name}.json"] = link(*shared_pair(f"{job}/{name}"))
    assert_equal(traces, tmp_path, some_of(JOB_COMMANDS, job, 2))
