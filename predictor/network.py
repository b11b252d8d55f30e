"""Now in `etplus.replaying`; kept for programs that import it from here."""

from ..replaying.network import Network, on_network

__all__ = ["Network", "on_network"]
