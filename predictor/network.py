"""Now in `etplus.replaying`; kept for programs that import it from here."""

from ..replaying.network import Algorithm, Network, on_network, parse_network, price

__all__ = ["Algorithm", "Network", "on_network", "parse_network", "price"]
