"""Now in `etplus.replaying`; kept for programs that import it from here."""

from ..replaying.constants import Constants, fit_constants
from ..replaying.graph_building import build_graph
from ..replaying.graph_replay import Replay, Unexplained, predicted_traces, relative_error, replay
from ..replaying.replay_graph import ReplayGraph

predicted_documents = predicted_traces

__all__ = [
    "Constants", "Replay", "ReplayGraph", "Unexplained", "build_graph", "fit_constants", "predicted_documents",
    "relative_error", "replay",
]  # fmt: skip
