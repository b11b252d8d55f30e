"""Lets the tests here import the helpers beside them and those of the converters' tests (the Perfetto UI)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "converters")]
