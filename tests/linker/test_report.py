"""The report: its numbers add up, its schema holds, its text fits a screen, and strangers' names cannot harm it."""

import orjson
from etplus.linker import link
from support import Document, fixture_pair, kineto_document


def test_nothing_linked_is_said() -> None:
    report = link(fixture_pair("demo/train_cpu")[0], orjson.dumps(stranger())).report
    assert report.ops["linked"] == 0 and report.method == ""
    assert any("nothing was linked" in warning for warning in report.warnings)
    assert "0.00%" in report.to_text() and "no method" in report.to_text()


def stranger() -> Document:
    return kineto_document([
        {"ph": "X", "cat": "cpu_op", "name": f"custom::op{i}", "ts": i, "dur": 1} for i in range(20)
    ])  # fmt: skip
