"""Now in `etplus.replaying`; kept for programs that import it from here."""

from ..replaying.graph_changes import remove, scale, set_latency
from ..replaying.meant_rows import select
from ..replaying.whatif import GRAMMAR, WhatIf, apply_what_ifs, parse_what_if

__all__ = ["GRAMMAR", "WhatIf", "apply_what_ifs", "parse_what_if", "remove", "scale", "select", "set_latency"]
