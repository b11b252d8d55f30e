"""The command line: one thin module a command, each with ``prepare_parser`` and ``run``."""
