# SPDX-License-Identifier: Apache-2.0
"""python -m gpu.burn SECONDS SIZE: multiplies SIZE x SIZE matrices of random bf16 (CPU: fp32).

Each second it prints {"time": seconds since 1970, "products": since the beginning, "seconds": since
the beginning}. It synchronizes so often that the count is right within a hundredth of a second.
"""

import json
import sys
import time

import torch


def main(seconds: float, size: int) -> None:
    """Multiply for ``seconds``."""
    is_gpu = torch.cuda.is_available()
    device, dtype = ("cuda", torch.bfloat16) if is_gpu else ("cpu", torch.float32)
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    product = torch.empty_like(left)

    def multiply(count: int) -> None:
        for _ in range(count):
            torch.mm(left, right, out=product)
        if is_gpu:
            torch.cuda.synchronize()

    multiply(5)
    began = printed = time.monotonic()
    products = 0
    while (now := time.monotonic()) - began < seconds:
        multiply(4)
        products += 4
        if now - printed >= 1:
            printed += 1
            _print(products, time.monotonic() - began)
    _print(products, time.monotonic() - began)


def _print(products: int, seconds: float) -> None:
    print(json.dumps({"time": time.time(), "products": products, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
