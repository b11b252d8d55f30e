"""The report of a link says where two files do not belong together."""

import orjson
from etplus.linker import link
from support import fixture_pair, kineto_document


def test_two_files_without_a_common_operator_give_a_warning() -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": f"custom::op{i}", "ts": i, "dur": 1} for i in range(20)]
    report = link(fixture_pair("demo/train_cpu")[0], orjson.dumps(kineto_document(events))).report
    assert report.ops["linked"] == 0 and report.method == ""
    assert any("nothing was linked" in warning for warning in report.warnings)
