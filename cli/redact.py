"""`etplus redact`: a copy of a trace without access tokens, passwords and, on request, names and paths."""

from __future__ import annotations

import argparse

from ..schemas.text.files import open_output, open_text
from ..schemas.text.secrets import MASK, Masker
from ..schemas.text.transaction import check_outputs
from ..trace.errors import TraceFormatError
from ..trace.text_tables import render, terminal_width
from .outputs import add_json, write_json
from .terminal import print_text, say

_EPILOG = f"""\
examples:
  etplus redact kineto.json.gz -o shared.json.gz
  etplus redact et_plus.json -o shared.json --hosts --users --paths
  etplus redact kineto.json.gz --dry-run

Masked with {MASK.decode()} is what looks like a secret (hf_..., ghp_..., AKIA...,
sk-..., JSON web tokens, private keys, signatures and passwords in URLs, ...) and
what is named like one (*TOKEN, *SECRET*, *PASSWORD*, *_KEY, *_PWD, *AUTH*, ...):
members of objects and all they hold, pairs of names and values, "NAME=value",
"name: value" and "--name value" in strings. All other bytes stay as they are. A
secret without such a form or name is not found: before you publish a trace, look
at its header and at what --dry-run lists as kept.

Exit status: 0 written, 2 bad input or usage, nothing written.
"""


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.description = "Mask secrets in a Kineto trace, an Execution Trace or ET+; all other bytes stay as they are."
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("input", metavar="IN", help="Kineto trace, ET or ET+, gzipped or not; - for standard input")
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("-o", "--output", metavar="OUT", help="the copy; gzipped if it ends in .gz")
    wanted.add_argument("--dry-run", action="store_true",
        help="write nothing; list the names of masked values, and of values kept despite a suspicious "
        "name")  # fmt: skip
    add_json(parser, "the count of masked values")
    add("--hosts", action="store_true", help="mask host names (hostname, NODE_LIST, MASTER_ADDR, ...)")
    add("--users", action="store_true", help="mask user names (USER, ..., folders below /home and /Users)")
    add("--paths", action="store_true", help="mask the folders of absolute paths; file names stay")


def run(arguments: argparse.Namespace) -> int:
    """Copy with masks, and report on standard error how many there are; returns the exit status."""
    source = arguments.input
    check_outputs([arguments.output, arguments.json], [source])
    blob = open_text(source, progress=True)
    if blob.broken_at is not None:
        raise TraceFormatError(
            blob.name, f"compressed byte {blob.broken_at}", "the gzip stream is damaged or cut off", "record it again"
        )
    if not blob.data[: 1 << 16].lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        raise TraceFormatError(blob.name, "byte 0", "not JSON", "give a Kineto trace, an Execution Trace or ET+")
    masker = Masker(hosts=arguments.hosts, users=arguments.users, paths=arguments.paths)
    if arguments.output is None:
        for _ in masker.pieces(blob.data):
            pass
        write_json(arguments.json, {"masked": masker.count, "by_name": dict(masker.masked), "kept": dict(masker.kept)})
        if arguments.json != "-":
            print_text(_found(masker, terminal_width()))
        return 0
    with open_output(arguments.output) as file:
        for piece in masker.pieces(blob.data):
            file.write(piece)
    write_json(arguments.json, {"masked": masker.count})
    say(f"masked  {masker.count:,} values\nwrote   {arguments.output}")
    return 0


def _found(masker: Masker, width: int) -> str:
    """What is masked and what is not, by name; never a value."""
    tables = (
        (f"masked: {masker.count:,} values", "name or form", masker.masked),
        (f"kept: {sum(masker.kept.values()):,} values under suspicious names", "name", masker.kept),
    )
    return "\n\n".join(
        render(title, [head, "values"], [[name, count] for name, count in found.most_common()], width)
        if found else title
        for title, head, found in tables
    )  # fmt: skip
