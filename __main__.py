"""`python -m etplus` is the command `etplus`."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
