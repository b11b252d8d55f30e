"""The command line. Each command is one thin module with the functions ``prepare_parser`` and ``run``."""
