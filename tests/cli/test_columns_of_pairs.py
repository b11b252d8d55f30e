"""Commands give the same bytes from ET+ JSON and from columns of every recorded CPU pair.

A file of its own, so that it runs beside the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from columns_equality import COMMANDS, assert_equal, some_of
from etplus import link
from support import cpu_pairs, shared_pair


@pytest.mark.slow
@pytest.mark.parametrize("name", cpu_pairs())
def test_of_every_pair(name: str, tmp_path: Path) -> None:
    assert_equal({"x.json": link(*shared_pair(f"cpu-pairs/{name}"))}, tmp_path, some_of(COMMANDS, name))
