"""Print line and branch coverage of each package: `make coverage` writes the JSON that this reads.

python tests/coverage_by_package.py coverage.json
"""

import json
import sys
from collections import Counter
from pathlib import Path, PurePath

from support import CORE

BAR = 0.95  # least share of the core's lines
KEYS = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def main(file: str) -> int:
    packages: dict[str, Counter[str]] = {}
    root = Path(__file__).parents[1]
    folders = [path.parent.name for path in root.glob("*/__init__.py")]
    for name, found in json.loads(Path(file).read_bytes())["files"].items():
        package = next((part for part in reversed(PurePath(name).parts[:-1]) if part in folders), "")
        packages.setdefault(package, Counter()).update({key: found["summary"][key] for key in KEYS})
    packages["core"] = sum((packages[name] for name in CORE if name in packages), Counter())
    print(f"{'package':12}{'lines':>8}{'branches':>10}")
    for name, counts in packages.items():
        if name:
            lines, branches = (counts[KEYS[at]] / max(counts[KEYS[at + 1]], 1) for at in (0, 2))
            print(f"{name:12}{lines:8.1%}{branches:10.1%}")
    core = packages["core"]
    return int(core["covered_lines"] < BAR * core["num_statements"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
