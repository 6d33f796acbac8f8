# SPDX-License-Identifier: Apache-2.0
"""python3 server.py SIZE: a language model of random weights behind HTTP, on the port that llmb
names.

POST / with {"prompt": [tokens], "tokens": count} answers {"tokens": [...]}, the most probable
continuation.
"""

import json
import math
import os
import random
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VOCABULARY = 128
WIDTHS = {"tiny": 32, "small": 96}

Matrix = list[list[float]]


class Model:
    """A recurrent network: state = tanh(W state + embedding), scores = V state."""

    def __init__(self, width: int) -> None:
        numbers = random.Random(1234)

        def matrix(rows: int, columns: int) -> Matrix:
            return [[numbers.gauss(0, columns**-0.5) for _ in range(columns)] for _ in range(rows)]

        self.width = width
        self.embedding = matrix(VOCABULARY, width)
        self.weights, self.readout = matrix(width, width), matrix(VOCABULARY, width)

    def generate(self, prompt: list[int], count: int) -> list[int]:
        """The next ``count`` tokens, each the most probable one."""
        state = [0.0] * self.width
        for token in prompt:
            state = self._step(state, token)
        found: list[int] = []
        for _ in range(count):
            scores = _times(self.readout, state)
            found.append(max(range(VOCABULARY), key=scores.__getitem__))
            state = self._step(state, found[-1])
        return found

    def _step(self, state: list[float], token: int) -> list[float]:
        mixed = _times(self.weights, state)
        return [math.tanh(a + b) for a, b in zip(mixed, self.embedding[token], strict=True)]


def _times(matrix: Matrix, vector: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def main(size: str) -> None:
    """Serve until the end."""
    model = Model(WIDTHS[size])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(
                {"tokens": model.generate(asked["prompt"], asked["tokens"])}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *values: object) -> None:
            """No line for each request: writing them would be measured too."""

    ThreadingHTTPServer(("127.0.0.1", int(os.environ["LLMB_SERVER_PORT"])), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
