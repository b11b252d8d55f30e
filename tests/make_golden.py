"""Write the golden files anew: `python tests/make_golden.py`; look at `git diff` and at the test's output first.

A golden file is the ET+ of a fixture pair, with the version of etplus masked, gzipped without a time stamp.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from etplus.linker import link
from support import FIXTURE_PAIRS, ROOT, fixture_pair

GOLDEN = ROOT / "tests" / "golden"
_VERSION = re.compile(rb'"tool_version": ?"[^"]*"')


def golden_path(name: str) -> Path:
    """Where the golden file of one of `FIXTURE_PAIRS` lies."""
    return GOLDEN / f"{Path(name).name}.etplus.json.gz"


def made_now(name: str) -> bytes:
    """The ET+ of a fixture pair as the code makes it now, the version masked."""
    text = b"".join(link(*fixture_pair(name)).chunks())
    masked, count = _VERSION.subn(b'"tool_version": "*"', text)
    assert count == 1
    return masked


def main() -> None:
    """Write all golden files."""
    GOLDEN.mkdir(exist_ok=True)
    for name in FIXTURE_PAIRS:
        golden_path(name).write_bytes(gzip.compress(made_now(name), mtime=0))
        print(golden_path(name).relative_to(ROOT))


if __name__ == "__main__":
    main()
