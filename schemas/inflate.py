"""Gunzip what a damaged or cut gzip file still holds."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator

from ..trace.errors import TraceFormatError

__all__ = ["decompress_tolerant"]

_GZIP_MAGIC = b"\x1f\x8b"
_STEP = 1 << 14


def decompress_tolerant(data: bytes, limit: int | None = None, name: str = "<bytes>") -> tuple[bytes, int | None]:
    """Gunzip what there is: all members up to the first damage.

    Args:
        data: a gzip stream of one or several members.
        limit: how many bytes may come out.
        name: the file's name for messages.

    Returns:
        The decompressed bytes, and the offset in `data` at which the stream is damaged or cut, None if it is whole.
        Bytes behind the last member that begin no other are ignored, as gzip does.

    Raises:
        TraceFormatError: more than `limit` bytes come out.
    """
    out: list[bytes] = []
    size, at = 0, 0
    while at == 0 or data.startswith(_GZIP_MAGIC, at):
        inflate = zlib.decompressobj(wbits=31)
        while not inflate.eof:
            block = data[at : at + _STEP]
            before = inflate.copy()
            try:
                out.append(inflate.decompress(block))
            except zlib.error:
                out += (rest := list(_up_to_damage(before, block)))
                return b"".join(out), at + len(rest)
            if not block:
                return b"".join(out), at
            at += len(block) - len(inflate.unused_data)
            size += len(out[-1])
            if limit is not None and size > limit:
                raise TraceFormatError(name, f"byte {at}", f"expands to over {limit} bytes", "this is no trace file")
    return b"".join(out), None


def _up_to_damage(inflate: zlib._Decompress, block: bytes) -> Iterator[bytes]:
    """What each byte of a block adds, up to the first that cannot be read."""
    with contextlib.suppress(zlib.error):
        for i in range(len(block)):
            yield inflate.decompress(block[i : i + 1])
