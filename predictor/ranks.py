"""Now in `etplus.replaying`; kept for programs that import it from here."""

from ..replaying.rank_coupling import join_ranks

couple = join_ranks

__all__ = ["couple", "join_ranks"]
