# SPDX-License-Identifier: Apache-2.0
"""Has a signal that ends the process end it in order."""

import signal
from types import FrameType


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
