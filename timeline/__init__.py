"""Replay traces as graphs, with or without what-if changes, and find their critical paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..trace.outer import lazy_names

if TYPE_CHECKING:
    from .constants import Constants, fit_constants
    from .graph_building import build_graph
    from .graph_replay import Replay, predicted_traces, replay
    from .network import on_network
    from .network_description import Network
    from .network_file import parse_network
    from .rank_coupling import join_ranks
    from .replay_graph import ReplayGraph
    from .replay_summary import BaseError
    from .whatif import WhatIf, apply_what_ifs, parse_what_if

__all__ = [
    "BaseError", "Constants", "Network", "Replay", "ReplayGraph", "WhatIf", "apply_what_ifs", "build_graph",
    "fit_constants", "join_ranks", "on_network", "parse_network", "parse_what_if", "predicted_traces", "replay",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".constants": "Constants fit_constants",
        ".graph_building": "build_graph",
        ".graph_replay": "Replay predicted_traces replay",
        ".network": "on_network",
        ".network_description": "Network",
        ".network_file": "parse_network",
        ".rank_coupling": "join_ranks",
        ".replay_graph": "ReplayGraph",
        ".replay_summary": "BaseError",
        ".whatif": "WhatIf apply_what_ifs parse_what_if",
    },
    __all__,
)
