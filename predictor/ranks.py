"""Now in `etplus.replaying`; kept for programs that import it from here."""

from ..replaying.rank_coupling import couple

__all__ = ["couple"]
