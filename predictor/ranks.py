"""Now in `etplus.replaying` and `etplus.jobs`; kept for programs that import it from here."""

from ..jobs.job_ranks import ranks_of
from ..replaying.rank_coupling import Rendezvous as Meeting
from ..replaying.rank_coupling import find_rendezvous as find_meetings
from ..replaying.rank_coupling import join_ranks as couple

__all__ = ["Meeting", "couple", "find_meetings", "ranks_of"]
