"""Same input, same bytes: in another process, under another hash seed, from another place."""

from __future__ import annotations

import os
import subprocess
import sys

from etplus.linker import link
from support import fixture_pair


def test_in_another_process_under_another_hash_seed() -> None:
    pair = fixture_pair("pairs/gpu_shaped_from_cpu")
    code = "import sys; from etplus.linker import link; sys.stdout.buffer.write(b''.join(link(*sys.argv[1:]).chunks()))"
    done = subprocess.run([sys.executable, "-c", code, *pair], env={**os.environ, "PYTHONHASHSEED": "4242"},
                          capture_output=True, check=True)  # fmt: skip
    assert done.stdout == b"".join(link(*pair).chunks())
