# SPDX-License-Identifier: Apache-2.0
"""_failing.py CASE: two steps, then the failure. On a CPU it is the nearest one that there is."""

import ctypes
import os
import signal
import sys
import time

import torch

# A value written where no memory is.
_KERNEL = """
extern "C" __global__ void write_nowhere(float *unused) { *(float *)16 = 1.0f; }
"""


def oom() -> None:
    """Allocate until the device has no memory left. A CPU is asked for a petabyte at once."""
    if not torch.cuda.is_available():
        torch.empty(1 << 50, dtype=torch.uint8)
    blocks = []
    while True:
        blocks.append(torch.empty(4 << 30, dtype=torch.uint8, device="cuda"))


def killed() -> None:
    """End as by the kernel's out-of-memory killer."""
    os.kill(os.getpid(), signal.SIGKILL)


def illegal_address() -> None:
    """Write outside of memory: by a kernel on a GPU, by a pointer on a CPU."""
    if not torch.cuda.is_available():
        ctypes.string_at(16)
    values = torch.zeros(1, device="cuda")
    # Of torch 2.9 and newer; it needs no compiler on the machine.
    kernel = torch.cuda._compile_kernel(_KERNEL, "write_nowhere")
    kernel(grid=(1, 1, 1), block=(1, 1, 1), args=[values])
    torch.cuda.synchronize()


def too_long() -> None:
    """Continue after the time limit."""
    time.sleep(600)


def main(case: str) -> None:
    """Log two steps, then fail."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for step in range(2):
        torch.ones(8, device=device).sum().item()
        print(f"llmb step {step}/2 speed=1", flush=True)
    {"oom": oom, "killed": killed, "illegal_address": illegal_address, "too_long": too_long}[case]()


if __name__ == "__main__":
    main(sys.argv[1])
