# SPDX-License-Identifier: Apache-2.0
"""Becomes a rank's program after asking the kernel to kill it when its runner dies. Run as a file,
imports only Python.

A runner that is killed cannot end its ranks, and another benchmark may be next on this machine.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(arguments: list[str]) -> int:
    """``arguments``: the runner's process id, then the program's argv."""
    runner, *argv = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(runner):  # the runner died before the request
        return 1
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"llmb error: {argv[0]} cannot be started: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
