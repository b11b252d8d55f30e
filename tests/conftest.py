"""Lets the tests import `support`, the helpers that they share, whichever way pytest imports the tests themselves."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
