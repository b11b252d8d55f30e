"""Write how the shapes of recordings are related, line by line: `python tests/reshape_golden.py`.

One text a recording: the extents of each call's tensors as numbers of their classes, the relations of the classes, what
speaks for each dimension; then each call at other sizes.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence

import etplus
from etplus.planning.reshape.reshape import reshaped
from etplus.planning.reshape.shape_change import parse_changes
from etplus.planning.reshape.shapes.followed_calls import Shapes, shapes_of
from etplus.planning.reshape.shapes.seeds import SizeEvidence
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from support import FIXTURES, ROOT

_GOLDEN = ROOT / "tests" / "golden" / "reshape"
CASES = {
    "conv": ("batches/conv_w8_d2__b8_t1", ("batch=32",)),
    "dlrm": ("batches/dlrm_w16_d3__b4_t1", ("batch=16",)),
    "mlp": ("batches/mlp_w128_d2__b8_t1", ("batch=12",)),
    "transformer": ("batches/transformer_w32_d1__b16_t1", ("batch=4",)),
    "contrastive": ("programs/contrastive__b4_s6_w32", ("batch=6",)),
    "gpt": ("programs/gpt_step__b4_s6_w32", ("seq=12",)),
    "lstm": ("programs/lstm_time__b4_s6_w32", ("batch=16", "seq=6:9")),
    "loader": ("programs/mlp__b8_s6_w32", ("batch=32",)),
}


def golden_lines(name: str) -> list[str]:
    """The lines of a case as they are kept."""
    return gzip.decompress((_GOLDEN / f"{name}.txt.gz").read_bytes()).decode().splitlines()


def made_lines(name: str) -> list[str]:
    """The lines of a case as the code makes them now."""
    file, change = CASES[name]
    trace = etplus.load(FIXTURES / f"{file}.json.gz")
    lines = [*_relations(trace, shapes_of(trace))]
    for changes in (change, change[:1]):
        lines += _changed(trace, changes)
    return lines


def _relations(trace: Trace, shapes: Shapes) -> Iterator[str]:
    extents, number = shapes.extents, dict[int, int]()

    def of(classes: Sequence[int]) -> str:
        return " ".join(
            f"{number.setdefault(root, len(number))}:{extents.value[root]}" for root in map(extents.root, classes)
        )

    for row, inputs in shapes.inputs.items():
        sides = [
            [[None if s is None else of(s) for s in some] for some in side] for side in (inputs, shapes.results[row])
        ]
        yield f"{trace.name_of(row)} {sides[0]} -> {sides[1]}"
    for source in shapes.sources:
        yield f"source {of(source.shape)} {source[1:]}"
    yield f"votes {[of(vote) for vote in shapes.votes]} mixed {of(shapes.mixed)} loaded {of(shapes.loaded)}"
    yield f"fixed {of(sorted(extents.fixed()))}"
    for kind in (sorted(extents.products.items()), extents.sums):
        yield from (f"{of([whole])} of {of(parts)}" for whole, parts in kind)
    yield from (f"{of(some)} follow {of(basis)}" for some, basis in extents.following)
    evidence = SizeEvidence("x", shapes)
    yield f"claims {[(one.size, one.votes, one.mixed, one.place) for one in evidence.claims]}"
    for dimension in ("batch", "seq"):
        for size in (None, 4, 6, 8, 32):
            try:
                roots, found = evidence.find(dimension, size)
                yield f"{dimension} {size} {of(sorted(roots))} {found}"
            except UsageError as error:
                yield f"{dimension} {size} {error}"


def _changed(trace: Trace, changes: Sequence[str]) -> Iterator[str]:
    try:
        done = reshaped(trace, parse_changes(changes))
    except UsageError as error:
        yield str(error)
        return
    yield f"{done.to_dict()}"
    for call, (code, unknown, repeats) in enumerate(
        zip(done.trace.calls.signature.tolist(), done.unknown.tolist(), done.repeats.tolist(), strict=True)
    ):
        signature = done.trace.signatures[code] if code >= 0 else None
        sides = () if signature is None else (signature.tensors, signature.outputs or ())
        shapes = [[(tensor.shape, tensor.dtype) for tensor in side] for side in sides]
        yield f"{done.trace.names[done.trace.calls.name[call]]} {shapes} {unknown} {repeats}"


def main() -> None:
    """Write all golden files."""
    _GOLDEN.mkdir(exist_ok=True)
    for name in CASES:
        text = "\n".join(made_lines(name))
        (_GOLDEN / f"{name}.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        print(name, len(text.splitlines()), len(text))


if __name__ == "__main__":
    main()
