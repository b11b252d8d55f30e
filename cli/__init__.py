"""Command line: one thin module per command, with ``prepare_parser`` and ``run``."""
