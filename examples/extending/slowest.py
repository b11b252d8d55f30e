"""A command. `etplus slowest TRACE` prints the kernels that take the longest."""

from argparse import ArgumentParser, Namespace

import etplus


class Slowest:
    """print the kernels that take the longest"""

    def prepare_parser(self, parser: ArgumentParser) -> None:
        parser.add_argument("trace", metavar="TRACE")
        parser.add_argument("-n", type=int, default=3, help="number of kernels to print (default: 3)")

    def run(self, arguments: Namespace) -> None:
        kernels = sorted(etplus.load(arguments.trace).kernels, key=lambda kernel: -kernel.duration_ns)
        for kernel in kernels[: arguments.n]:
            print(f"{kernel.duration_ns / 1e3:,.1f} µs  {kernel.name}")
