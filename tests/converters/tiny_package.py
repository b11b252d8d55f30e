"""A package of another author that registers readers or exporters."""

import os
from pathlib import Path


def install(folder: Path, code: str, kind: str, **points: str) -> dict[str, str]:
    """Write a distribution `tiny` with one module and entry points of `etplus.KIND`; return its environment."""
    info = folder / "tiny-1.5.dist-info"
    info.mkdir(parents=True)
    (folder / "tiny.py").write_text(code)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.5\n")
    entries = "".join(f"{name} = {value}\n" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[etplus.{kind}]\n{entries}")
    return {**os.environ, "PYTHONPATH": str(folder)}
