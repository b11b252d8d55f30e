"""What PyTorch's observers print when they start and stop, which a recorded program does not print by itself."""

import os
from pathlib import Path

import pytest
from etplus.recording.hook.observers import without_notices

LINES = {
    b"[W1124 04:41:10.8 execution_trace_observer.cpp:1001] Disabling Execution Trace Observer": False,
    b"ERROR:2026-11-24 04:43:18 27539:27539 DeviceProperties.cpp:56] gpuGetDeviceCount failed with code 35": False,
    b"STAGE:2026-11-24 04:43:18 1:1 ActivityProfilerController.cpp:312] Completed Stage: Warm Up": False,
    b"ERROR:2026-11-24 04:43:18 27539:27539 CuptiActivityProfiler.cpp:5] out of memory": True,
    b"a line of the program": True,
}


def test_notices_are_kept_out_and_all_else_is_handed_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with without_notices(tmp_path):
        os.write(2, b"".join(line + b"\n" for line in LINES))
    os.write(2, b"after")
    assert capfd.readouterr().err.encode() == b"".join(line + b"\n" for line, kept in LINES.items() if kept) + b"after"
