"""Data frames of operators and kernels: each column equals what the rows and other tables say, by brute force."""

from typing import Any

import pytest
from etplus.analysis.event_frames import CallFrame, EventFrame
from etplus.trace.frames import Nullable
from support import linked


def test_frames_keep_nulls_and_say_units() -> None:
    trace = linked("pairs/gpu_shaped_from_cpu")
    frame, table = trace.device_events.to_pandas(), trace.device_events.to_arrow()
    assert list(frame.columns) == table.column_names == [column.name for column in EventFrame.columns()]
    about = b"Time from the end of the launch call to the event's start; at least 0."
    assert table.schema.field("delay_ns").metadata == {b"unit": b"ns", b"about": about}
    expected: dict[str, list[Any]] = {}
    for name, values in trace.device_events._columns().items():
        if isinstance(values, Nullable):
            pairs = zip(values.values.tolist(), values.missing.tolist(), strict=True)
            expected[name] = [None if missing else value for value, missing in pairs]
        else:
            expected[name] = list(values)
    for name in frame.columns:
        assert table.column(name).to_pylist() == expected[name], name
        missing = frame[name].isna().tolist()
        assert missing == [value is None for value in expected[name]], name
    assert frame.groupby("op_name").duration_ns.sum().sum() == trace.gpu.dur.sum()
    assert list(trace.ops.to_pandas().columns) == [column.name for column in CallFrame.columns()]


@pytest.mark.parametrize(("table", "columns"), [("ops", CallFrame.columns()), ("kernels", EventFrame.columns())])
def test_sql_returns_the_same_rows_as_the_data_frames(table: str, columns: Any) -> None:
    trace = linked("pairs/gpu_shaped_from_cpu")
    rows = trace.ops if table == "ops" else trace.kernels
    found = trace.sql(f"select * exclude (rank) from {table} order by index").to_arrow()
    assert found.column_names == [column.name for column in columns]
    assert found.to_pylist() == rows.to_arrow().to_pylist()
