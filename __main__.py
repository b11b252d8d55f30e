"""`python -m etplus` is the command `etplus`."""

import contextlib
import os
import sys

if __name__ == "__main__":
    # Python put the current folder first on the import path. It may hold traces with unknown files next to them: unless
    # this package itself is there, nothing is imported from it.
    with contextlib.suppress(FileNotFoundError):  # the current folder was removed
        if os.path.realpath(sys.path[0]) == os.path.realpath(os.curdir) != os.path.realpath(f"{__file__}/../.."):
            del sys.path[0]
    from .cli.main import main

    sys.exit(main())
