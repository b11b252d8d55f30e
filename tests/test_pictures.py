"""The pictures of docs/ are what their script draws of the project as it is."""

import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the script reads pyproject.toml with tomllib")
def test_the_pictures_are_those_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    for name in ("pyproject.toml", "docs/draw_house.py", "docs/draw_idea.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run([sys.executable, tmp_path / "docs" / "draw_house.py"], check=True)
    subprocess.run([sys.executable, tmp_path / "docs" / "draw_idea.py"], check=True)
    for name in ("house.svg", "kernel.svg", "idea.svg"):
        assert (tmp_path / "docs" / "pictures" / name).read_text() == (ROOT / "docs" / "pictures" / name).read_text()
