"""Now in `etplus.replaying`; kept for programs that import it from here."""

from ..replaying.constants import fit_constants
from ..replaying.replay import build_graph, replay

__all__ = ["build_graph", "fit_constants", "replay"]
