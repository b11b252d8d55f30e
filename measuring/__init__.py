"""Times operators of a trace on the machine at hand, and writes scripts that reproduce them."""
