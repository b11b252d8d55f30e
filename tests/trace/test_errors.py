"""Errors say where and what, also after they were sent to another process."""

import pickle

import pytest
from etplus.trace.errors import EtplusError, MissingFileError, TraceFormatError


@pytest.mark.parametrize(
    ("given", "text"),
    [(("x.json", "byte 7", "is cut off", "record it again"), "x.json: byte 7: is cut off; record it again"),
     (("x.json", "", "is empty"), "x.json: is empty"), (("x.json", "id 3", "is odd"), "x.json: id 3: is odd")],
)  # fmt: skip
def test_a_format_error_names_its_file_and_survives_pickling(given: tuple[str, ...], text: str) -> None:
    for one in (TraceFormatError(*given), pickle.loads(pickle.dumps(TraceFormatError(*given)))):
        assert isinstance(one, EtplusError) and str(one) == text and (one.file, one.place) == given[:2]


def test_a_missing_file_is_told_after_another_process_as_well() -> None:
    error = MissingFileError("x.json", "look again", "is gone")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert type(one) is MissingFileError and str(one) == "x.json: is gone; look again"
