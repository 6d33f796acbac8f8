# SPDX-License-Identifier: Apache-2.0
"""Makes the process fit for work, however it was started and is ended: closed streams, no home folder, a signal."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType

from llmb.errors import UsageError

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))  # by their numbers


def open_streams() -> None:
    """Have standard input, output and error: of a closed one nothing is read, and nothing comes out.

    Left closed, its number would be that of the next file that is opened.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number)
            if opened != number:
                os.close(opened)
        setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def end_in_order() -> None:
    """Have what a batch system or a lost connection sends do what Ctrl-C does: end the steps under way, note the rest.

    A signal that is ignored, as under nohup, stays so.
    """

    def as_ctrl_c(_number: int, frame: FrameType | None) -> None:
        heard = signal.getsignal(signal.SIGINT)
        if not callable(heard):
            raise KeyboardInterrupt
        heard(signal.SIGINT, frame)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, as_ctrl_c)


def require_home() -> None:
    """Raise UsageError where nobody can say what the user's home folder is."""
    if not os.environ.get("HOME"):
        os.environ.pop("HOME", None)
    try:
        Path.home()
    except RuntimeError as error:
        message = f"your home folder is not known: HOME is not set, and there is no user with the number {os.getuid()}"
        raise UsageError(message, hint="export HOME=DIR, a folder of yours") from error
