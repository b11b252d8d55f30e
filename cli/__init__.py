"""Command line: one thin module per command, with the functions ``prepare_parser`` and ``run``."""
