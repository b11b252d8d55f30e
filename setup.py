"""Lists the packages: the root of the repository is the package `etplus`, which setuptools does not discover."""

from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
FOLDERS = sorted(
    init.parent.relative_to(ROOT)
    for top in ROOT.iterdir()
    if (top / "__init__.py").exists()
    for init in top.rglob("__init__.py")
)

setup(packages=["etplus", *(".".join(("etplus", *folder.parts)) for folder in FOLDERS)])
