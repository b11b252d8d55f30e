"""Lets the tests import `support`, the helpers that they share, whichever way pytest imports the tests themselves."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# A shell starts background jobs with SIGINT ignored, and children inherit that; the tests of interruption need it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same programs on each run; `--hypothesis-profile=default` hunts with others.
settings.register_profile("suite", derandomize=True)
settings.load_profile("suite")
