# SPDX-License-Identifier: Apache-2.0
"""A real browser for tests of pages and for their screenshots: headless Chromium, without any
driver.
"""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any


def find_browser() -> str | None:
    """Return the program of a Chromium, or None where there is none."""
    return (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )


# Chromium speaks over the descriptors 3 and 4.
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(text), fcntl.F_DUPFD, 10) for text in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """Headless Chromium with one page, controlled by its DevTools protocol over a pipe."""

    def __init__(self, program: str, profile: Path) -> None:
        to_browser, from_browser = os.pipe(), os.pipe()
        ends = to_browser[0], from_browser[1]
        argv = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, *map(str, ends), *argv],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        self._out, self._in = os.fdopen(to_browser[1], "wb", 0), os.fdopen(from_browser[0], "rb")
        self._number, self.events = 0, list[dict[str, Any]]()
        self._session: str | None = None

    def start(self) -> None:
        """Open a page, because the first one may not exist yet, and receive its events."""
        page = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Page.setLifecycleEventsEnabled", enabled=True)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its answer. Events until then are appended to ``events``."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": params, **session}
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("id") == self._number:
                assert "error" not in found, found
                answer: dict[str, Any] = found["result"]
                return answer

    def _read(self) -> dict[str, Any]:
        text = bytearray()
        while (char := self._in.read(1)) != b"\0":
            assert char, "the browser has gone"
            text += char
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, path: Path) -> None:
        """Show the file and wait until it is loaded."""
        self.events.clear()
        loader = self.ask("Page.navigate", url=path.as_uri())["loaderId"]
        # of this page: an earlier one may tell of its end late
        loaded = {"loaderId": loader, "name": "load"}
        while not any(loaded.items() <= _of_lifecycle(event).items() for event in self.events):
            self._read()

    def value(self, script: str) -> Any:
        """Return the value of ``script``, of a promise once it is fulfilled."""
        answer = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        return answer["result"].get("value")

    def width(
        self, pixels: int, *, scheme: str = "light", height: int = 900, scale: int = 1
    ) -> None:
        """Set the size and the preferred colour scheme of the page. ``scale``: dots of a picture
        for each pixel.
        """
        size = {"width": pixels, "height": height, "deviceScaleFactor": scale}
        self.ask("Emulation.setDeviceMetricsOverride", **size, mobile=False)
        self.ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def screenshot(self) -> bytes:
        """Return the whole page as PNG."""
        return base64.b64decode(
            self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        )

    def pdf(self) -> bytes:
        """Return the page as it is printed on A4."""
        paper = {
            "paperWidth": 8.27,
            "paperHeight": 11.69,
            "printBackground": True,
            "preferCSSPageSize": True,
        }
        return base64.b64decode(self.ask("Page.printToPDF", **paper)["data"])

    def close(self) -> None:
        """Close the browser. Kill it if it does not end."""
        self._session = None
        with contextlib.suppress(AssertionError, OSError):
            self.ask("Browser.close")
        self._out.close()
        self._in.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _of_lifecycle(event: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of an event of a page's lifecycle, empty for other events."""
    answer: dict[str, Any] = event["params"] if event["method"] == "Page.lifecycleEvent" else {}
    return answer
