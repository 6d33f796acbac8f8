# SPDX-License-Identifier: Apache-2.0
"""A model hub on loopback: files at a commit, optionally behind a token, and answers that fail on
demand.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class SmallHub:
    """Serves the files of ``folder``, each as ``/<owner>/<name>/resolve/<revision>/<file>``. A
    context manager.

    ``token``: required in requests, None for public files. ``busy``: how many requests get status
    429 first. ``cut``: how many answers end in the middle. ``gate``: if set, answers wait for it
    after half of their body.
    """

    def __init__(self, folder: Path, *, token: str | None = None) -> None:
        self.folder, self.token = folder, token
        self.busy, self.cut = 0, 0
        self.gate: threading.Event | None = None
        self.reached = threading.Event()  # set when an answer waits for the gate
        # method, path and Range of each request
        self.asked: deque[tuple[str, str, str | None]] = deque()
        self.silent = False  # whether answers omit sizes
        self.wrong: bytes | None = None  # sent instead of the content
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """The value for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server.server_port}"

    def add(self, repository: str, name: str, content: bytes) -> None:
        """Add a file."""
        path = self.folder / repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def __enter__(self) -> SmallHub:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.gate is not None:
            self.gate.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def _handler(hub: SmallHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            hub.asked.append((self.command, self.path, self.headers["Range"]))
            if hub.busy:
                hub.busy -= 1
                return self.refuse(429, {"Retry-After": "0"})
            if hub.token is not None and self.headers["Authorization"] != f"Bearer {hub.token}":
                return self.refuse(401)
            repository, _, file = self.path.strip("/").partition("/resolve/")
            path = hub.folder / repository / file.partition("/")[2]
            if not path.is_file():
                return self.refuse(404)
            content = path.read_bytes()
            first = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
            self.send_response(206 if first else 200)
            if body or not hub.silent:
                self.send_header("Content-Length", str(len(content) - first))
            self.send_header("X-Repo-Commit", COMMIT)
            if not hub.silent:
                self.send_header("X-Linked-Size", str(len(content)))
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.end_headers()
            if body:
                self.send(hub.wrong or content, first)
            return None

        def send(self, content: bytes, first: int) -> None:
            half = first + (len(content) - first) // 2
            try:
                self.wfile.write(content[first:half])
                if hub.cut:
                    hub.cut -= 1
                    self.close_connection = True
                    return
                if hub.gate is not None:
                    self.wfile.flush()
                    hub.reached.set()
                    hub.gate.wait(600)
                self.wfile.write(content[half:])
            except ConnectionError:  # the client was killed
                self.close_connection = True

        def refuse(self, code: int, headers: dict[str, str] | None = None) -> None:
            self.send_response(code)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    return Handler
