"""Now in `etplus.replaying`; kept for programs that import it from here."""

from ..replaying.whatif import GRAMMAR, WhatIf, apply_what_ifs, parse_what_if, remove, scale, select, set_latency

__all__ = ["GRAMMAR", "WhatIf", "apply_what_ifs", "parse_what_if", "remove", "scale", "select", "set_latency"]
