"""ET+ of the fixtures against golden files, byte for byte; `python tests/goldens.py` writes them anew."""

import json
from typing import Any

import orjson
import pytest
from goldens import golden_path, made_now
from support import FIXTURE_PAIRS, assert_valid, plain


def first_difference(golden: Any, now: Any, where: str = "") -> str:
    """A place where two documents differ, "" if they say the same."""
    if isinstance(golden, dict) and isinstance(now, dict) and golden.keys() == now.keys():
        pairs = [(f"{where}.{key}", golden[key], now[key]) for key in golden]
    elif isinstance(golden, list) and isinstance(now, list) and len(golden) == len(now):
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(golden, now, strict=True))]
    else:
        same = json.dumps(golden) == json.dumps(now)
        return "" if same else f"{where}: {json.dumps(golden)[:200]} became {json.dumps(now)[:200]}"
    return next((found for place, a, b in pairs if (found := first_difference(a, b, place))), "")


@pytest.mark.parametrize("name", FIXTURE_PAIRS)
def test_linking_a_fixture_gives_its_golden_file_byte_for_byte(name: str) -> None:
    golden, now = plain(golden_path(name)), made_now(name)
    assert_valid(orjson.loads(golden))
    assert first_difference(orjson.loads(golden), orjson.loads(now)) == ""
    assert golden == now, "the documents say the same, but not in the same bytes"
