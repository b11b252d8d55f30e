"""Now in `etplus.replaying`; kept for programs that import it from here."""

from ..replaying.whatif import apply_what_ifs, parse_what_if

__all__ = ["apply_what_ifs", "parse_what_if"]
