# SPDX-License-Identifier: Apache-2.0
"""Serves the API over HTTP on loopback, with the troubles that a test asked for."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from llmb_testing.runai.plane import ControlPlane
from llmb_testing.runai.routes import VERSIONS, answer_to, sign_in
from llmb_testing.runai.views import BadQueryError, ViewAnswer, error

_ROOT = "/api/v1"


@contextmanager
def serve(plane: ControlPlane) -> Iterator[ControlPlane]:
    """Serve ``plane`` on a loopback port, in threads, within the context. Then kill its pods."""
    handler = type("Handler", (_Handler,), {"plane": plane})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http.daemon_threads = True
    http.block_on_close = False  # clients keep their connections open
    plane.url = f"http://127.0.0.1:{http.server_address[1]}{_ROOT}"
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield plane
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
        plane.kill_pods()


class _Handler(BaseHTTPRequestHandler):
    plane: ControlPlane
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one write

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        url = urlsplit(self.path)
        if not url.path.startswith(f"{_ROOT}/") and url.path not in VERSIONS:
            self._send(error(404, "page not found"))
            return
        path, plane = url.path.removeprefix(_ROOT), self.plane
        with plane.lock:
            plane.requests.append((self.command, path))
            trouble = plane.trouble_for(self.command, path)
            if trouble is not None and isinstance(trouble.answer, int):
                if trouble.is_done:
                    self._answer(path, dict(parse_qsl(url.query)), content)
                answer = ViewAnswer(
                    status=trouble.answer,
                    data=error(trouble.answer, "trouble").data,
                    headers=trouble.headers,
                )
            elif trouble is not None and trouble.answer == "cut":
                answer = None
            else:
                answer = self._answer(path, dict(parse_qsl(url.query)), content)
                if trouble is not None:
                    answer = (
                        ViewAnswer(status=200, data=trouble.data)
                        if trouble.answer == "odd"
                        else None
                    )
            plane.answers.append(answer.status if answer is not None else 0)
        if answer is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(answer)

    def _answer(self, path: str, query: dict[str, str], content: bytes) -> ViewAnswer:
        try:
            if version := VERSIONS.get(urlsplit(self.path).path):
                return sign_in(self.plane, version, content, self.headers.get("Content-Type", ""))
            body: Any = json.loads(content) if content else None
            scheme, _, token = self.headers.get("Authorization", "").partition(" ")
            if not (scheme == "Bearer" and self.plane.is_good(token)):
                return error(401, "invalid token")
            return answer_to(self.plane, self.command, path, query, body)
        except (BadQueryError, ValueError) as wrong:
            return error(400, str(wrong))

    def _send(self, answer: ViewAnswer) -> None:
        text = json.dumps(answer.data).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the control plane records requests."""
