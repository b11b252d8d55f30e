"""Write the operator calls of recordings as they are called again: `python tests/measure_golden.py`."""

from __future__ import annotations

import gzip
import json

import etplus
from etplus.planning.measure.reader import recorded_calls
from etplus.planning.reshape.reshape import reshaped
from etplus.planning.reshape.shape_change import batch_change
from support import FIXTURES, ROOT

_GOLDEN = ROOT / "tests" / "golden" / "measure"
CASES = {
    "conv": "batches/conv_w8_d2__b8_t1",
    "dlrm": "batches/dlrm_w16_d3__b4_t1",
    "transformer": "batches/transformer_w32_d1__b16_t1",
    "lstm": "programs/lstm_time__b4_s6_w32",
    "loader": "programs/mlp__b8_s6_w32",
}


def golden_lines(name: str) -> list[str]:
    """The lines of a case as they are kept."""
    return gzip.decompress((_GOLDEN / f"{name}.txt.gz").read_bytes()).decode().splitlines()


def made_lines(name: str) -> list[str]:
    """The lines of a case as the code makes them now: calls, at twelve samples too."""
    trace = etplus.load(FIXTURES / f"{CASES[name]}.json.gz")
    lines, seen = list[str](), set[str]()
    for some in (trace, reshaped(trace, batch_change(12)).trace):
        for index, call in recorded_calls(some):
            if isinstance(call, str):
                lines.append(f"{index} {call}")
            elif call.key not in seen:
                seen.add(call.key)
                results = [one.shape for one in call.results]
                lines.append(f"{index} {call.key} {call.needed_bytes} {json.dumps(call.call)} {results}")
    return lines


def main() -> None:
    """Write all golden files."""
    _GOLDEN.mkdir(exist_ok=True)
    for name in CASES:
        text = "\n".join(made_lines(name))
        (_GOLDEN / f"{name}.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        print(name, len(text.splitlines()), len(text))


if __name__ == "__main__":
    main()
