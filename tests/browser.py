"""A headless Chromium driven over the DevTools pipe: open a page, ask it, look at it, hear what it says and fetches."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_TIMEOUT_S = 90
_BLOCK = 1 << 16


def chromium() -> str | None:
    """The browser's path, None if there is none."""
    return next(filter(None, map(shutil.which, _CHROMIUMS)), None)


class Page:
    """One tab.

    Attributes:
        errors: what the console and the browser complained of since the page was opened.
        requests: addresses that the page asked for, itself included.
    """

    def __init__(self, to_browser: IO[bytes], from_browser: int) -> None:
        self._out, self._in = to_browser, from_browser
        self._ids = itertools.count(1)
        self._read_ahead = b""
        self._session: dict[str, str] = {}
        self._target = ""
        self.errors: list[str] = []
        self.requests: list[str] = []

    def goto(self, address: str) -> None:
        """Open an address in a new tab, which reports what it does, and close the one before."""
        before, self._session = self._target, {}
        self._target = self.call("Target.createTarget", url="about:blank")["targetId"]
        if before:
            self.call("Target.closeTarget", targetId=before)
        attached = self.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        self.errors, self.requests = [], []
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=address)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, of a promise what it is fulfilled with."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Ask until it holds; while the page is loading there may be nothing to ask."""
        for _ in range(20 * _TIMEOUT_S):
            with contextlib.suppress(AssertionError):
                if self.evaluate(f"Boolean({condition})"):
                    return
            time.sleep(0.05)
        raise AssertionError(f"waited in vain for {condition}; errors: {self.errors}")

    def call(self, method: str, **params: Any) -> Any:
        """A DevTools command."""
        own = next(self._ids)
        self._out.write(json.dumps({"id": own, "method": method, "params": params, **self._session}).encode() + b"\0")
        self._out.flush()
        while True:
            message = self._message()
            if message.get("id") == own:
                assert "error" not in message, message["error"]
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.errors.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.errors.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._read_ahead:
            block = os.read(self._in, _BLOCK)
            assert block, "the browser has gone"
            self._read_ahead += block
        text, _, self._read_ahead = self._read_ahead.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


@contextmanager
def open_page(folder: Path, *, size: str = "1600,1000", timeout_s: int = _TIMEOUT_S) -> Iterator[Page]:
    """Start the browser; it ends with the block, or when the time is up (by no thread: with two, nothing forks).

    Args:
        folder: for the browser's profile.
    """
    to_browser, from_test = os.pipe(), os.pipe()
    read_end, write_end = to_browser[0], from_test[1]
    browser = chromium()
    assert browser
    options = [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={size}",
        "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", "about:blank",
    ]  # fmt: skip
    script = (
        f"import os, signal, sys; from fcntl import F_DUPFD, fcntl; signal.alarm({timeout_s});"
        f"ends = [fcntl(end, F_DUPFD, 10) for end in ({read_end}, {write_end})];"
        "os.dup2(ends[0], 3); os.dup2(ends[1], 4); os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, browser, *options], pass_fds=(read_end, write_end), stderr=subprocess.DEVNULL
    )
    os.close(read_end)
    os.close(write_end)
    try:
        with os.fdopen(to_browser[1], "wb") as out:
            yield Page(out, from_test[0])
    finally:
        process.terminate()
        process.wait(10)
        os.close(from_test[0])
