"""Lets the tests import `support`, the helpers that they share, whichever way pytest imports the tests themselves."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# A shell starts background jobs with SIGINT ignored, and children inherit that; the tests of interruption need it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same programs every time; `--hypothesis-profile=hunt` looks at others.
settings.register_profile("same", derandomize=True)
settings.register_profile("hunt", max_examples=2000)
settings.load_profile("same")
