# SPDX-License-Identifier: Apache-2.0
"""The bytes that uv and pip have downloaded, by what they print."""

import contextlib
import re

from llmb.system.shell import StoppedError
from llmb_installer.step import Progress

_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = r"\(([\d.]+) ?([kMG]?B|[KMG]iB)\)"
_BEGUN = re.compile(rf"\s*Downloading (\S+) {_SIZE}")  # pip: a file or URL; uv: a package
_ENDED = re.compile(r"\s*Downloaded (\S+)")  # uv only: several at a time
_AT = re.compile(r"Progress (\d+) of (\d+)")  # pip with --progress-bar raw: bytes of the file


class Downloads:
    """Reads the output of one program after another, and reports to ``progress``: bytes so far and packages."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.done, self.total = 0, 0
        self._reported = 0
        self.running: dict[str, int] = {}  # bytes of each package that is being downloaded
        self._rest, self._partly, self._is_pip = b"", 0, False

    def __call__(self, output: bytes) -> None:
        """Read a part of the output, which may end within a line."""
        *lines, self._rest = (self._rest + output).replace(b"\r", b"\n").split(b"\n")
        changed = [self._read(line.decode("utf-8", "replace")) for line in lines]
        if any(changed):
            with contextlib.suppress(StoppedError):  # the program is ended by whoever waits for it
                now = self.done + self._partly
                self.progress.total(self.total)
                self.progress.advance(now - self._reported)
                self._reported = now
                self.progress.say(self._names())

    def _names(self) -> str:
        """The largest package that is being downloaded, and the number of others."""
        largest, others = max(self.running, key=lambda name: self.running[name], default=""), len(self.running) - 1
        return f"{largest} and {others} more" if others > 0 else largest

    def _read(self, line: str) -> bool:
        """Whether the line reports a download."""
        if (begun := _BEGUN.match(line)) is not None:
            name = begun[1].rpartition("/")[2]
            self._is_pip = name.endswith((".whl", ".gz", ".zip", ".metadata"))
            if self._is_pip:
                self._finish_all()
                name = name.partition("-")[0]
            self.running[name] = int(float(begun[2]) * _UNITS[begun[3]])
            self.total += self.running[name]
            return True
        if (ended := _ENDED.match(line)) is not None:
            self.done += self.running.pop(ended[1], 0)
            return True
        if (at := _AT.match(line)) is not None and self.running:
            self._partly = min(int(at[1]), *self.running.values())
            return True
        if self._is_pip and self.running and line.strip():  # pip downloads one file at a time
            self._finish_all()
            return True
        return False

    def _finish_all(self) -> None:
        self.done += sum(self.running.values())
        self.running.clear()
        self._partly = 0
