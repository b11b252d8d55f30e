"""List the packages. setuptools does not discover them, because the repository's root is the package `etplus`."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
FOLDERS = sorted(
    init.parent.relative_to(ROOT)
    for top in ROOT.iterdir()
    if (top / "__init__.py").exists()
    for init in top.rglob("__init__.py")
)


class BuildPackages(build_py):
    """Leave this file out of the wheel: it is in the folder of the package `etplus`."""

    def find_package_modules(self, package, package_dir):
        return [module for module in super().find_package_modules(package, package_dir) if module[1] != "setup"]


setup(
    packages=["etplus", *(".".join(("etplus", *folder.parts)) for folder in FOLDERS)],
    cmdclass={"build_py": BuildPackages},
)
