# SPDX-License-Identifier: Apache-2.0
"""python3 client.py --steps=20 --concurrency=4 --output_tokens=16: requests, and a line for each
iteration.
"""

import http.client
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

REQUESTS = 40  # of an iteration
WARM_UP = 2  # iterations
PROMPT = list(range(8))


class Caller:
    """One client: asks, waits for the answer, asks again, over one connection."""

    def __init__(self, tokens: int) -> None:
        self.connection = http.client.HTTPConnection(
            "127.0.0.1", int(os.environ["LLMB_SERVER_PORT"]), timeout=60
        )
        self.body = json.dumps({"prompt": PROMPT, "tokens": tokens})
        self.expected: list[int] | None = None

    def ask(self, count: int) -> list[float]:
        """The latencies of ``count`` requests in seconds. Raises RuntimeError for an answer that is
        wrong.
        """
        return [self._once() for _ in range(count)]

    def _once(self) -> float:
        start = time.perf_counter()
        self.connection.request("POST", "/", self.body)
        response = self.connection.getresponse()
        text = response.read()
        seconds = time.perf_counter() - start
        answer = json.loads(text)["tokens"] if response.status == 200 else None
        if answer is None or answer != (self.expected or answer):
            raise RuntimeError(
                f"the server answers {response.status}, {text!r}; before it was {self.expected}"
            )
        self.expected = answer
        return seconds


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least this share of the values does not exceed (nearest rank)."""
    return sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]


def iteration(callers: Sequence[Caller], pool: ThreadPoolExecutor) -> dict[str, float]:
    """The metrics of REQUESTS requests."""
    start = time.perf_counter()
    answered = pool.map(lambda caller: caller.ask(max(1, REQUESTS // len(callers))), callers)
    latencies = [seconds for own in answered for seconds in own]
    elapsed = time.perf_counter() - start
    return {
        "requests_per_second": len(latencies) / elapsed,
        "p50": percentile(latencies, 50) * 1e3,
        "p99": percentile(latencies, 99) * 1e3,
    }


def main(arguments: Sequence[str]) -> None:
    """Print the lines that llmb reads."""
    given = dict(word.removeprefix("--").split("=", 1) for word in arguments)
    steps, concurrency, tokens = (
        int(given[name]) for name in ("steps", "concurrency", "output_tokens")
    )
    callers = [Caller(tokens) for _ in range(concurrency)]
    with ThreadPoolExecutor(concurrency) as pool:
        for step in range(-WARM_UP, steps):
            values = iteration(callers, pool)
            if step >= 0:
                shown = " ".join(f"{name}={value:.6g}" for name, value in values.items())
                print(f"llmb step {step}/{steps - 1} {shown}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
