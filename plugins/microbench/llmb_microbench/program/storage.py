# SPDX-License-Identifier: Apache-2.0
"""Writes a file and reads it again, on every rank at once, past the page cache if possible."""

import errno
import mmap
import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from llmb_microbench.program import formulas
from llmb_microbench.program.settings import CaseSettings, MicrobenchError
from llmb_microbench.program.timing import Case

if TYPE_CHECKING:
    from llmb_microbench.program.ranks import TorchRanks

FOLDER = "MICROBENCH_FOLDER"
BLOCK = 4 * 1024**2  # bytes of one call; a multiple of every block size, as O_DIRECT requires
_DIRECT = getattr(os, "O_DIRECT", 0)  # not on every system


class File:
    """The file of one rank. Its name is removed at once, so that the file ends with the process.

    The memory of its blocks is a map, which begins at a page, as O_DIRECT requires.
    """

    def __init__(self, folder: Path, name: str, size: int) -> None:
        self.size, self.block = size, min(BLOCK, size)
        self.data, self.found = mmap.mmap(-1, self.block), mmap.mmap(-1, self.block)
        self.data.write(os.urandom(self.block))
        self.is_direct = bool(_DIRECT) and self._open(folder / name, _DIRECT)
        if not self.is_direct:
            self._open(folder / name, 0)

    def _open(self, path: Path, flag: int) -> bool:
        """Open it. Return False if the file system refuses a write with this flag, as some do."""
        try:
            self.handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | flag, 0o600)
        except OSError as error:
            if flag and error.errno == errno.EINVAL:
                path.unlink(missing_ok=True)  # Linux has made it all the same
                return False
            raise
        path.unlink()
        try:
            os.pwrite(self.handle, self.data, 0)
        except OSError as error:
            os.close(self.handle)
            if flag and error.errno == errno.EINVAL:
                return False
            raise
        return True

    def write(self) -> None:
        """Write all blocks, and wait until the storage has them."""
        for start in range(0, self.size, self.block):
            if os.pwrite(self.handle, self.data, start) != self.block:
                raise OSError(errno.ENOSPC, "not everything was written")
        os.fsync(self.handle)
        if not self.is_direct:
            os.posix_fadvise(self.handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self) -> None:
        """Read all blocks."""
        for start in range(0, self.size, self.block):
            if os.preadv(self.handle, [self.found], start) != self.block:
                raise OSError(errno.EIO, "less was read than was written")

    def is_right(self) -> bool:
        """Return True if the last block was read as written, and the file has its size."""
        return self.data[:] == self.found[:] and os.fstat(self.handle).st_size == self.size


def storage(settings: CaseSettings, ranks: "TorchRanks") -> Case:
    """A file for each rank in MICROBENCH_FOLDER, else in the run's folder.

    Raises MicrobenchError if there is too little space.
    """
    size, process = settings.size("file_size"), ranks.process
    folder = Path(os.environ.get(FOLDER) or ".")
    if not folder.is_dir():
        raise MicrobenchError(
            f"{FOLDER} is {folder}, which is not a folder on this node; name another one"
        )
    if shutil.disk_usage(folder).free < 2 * size * process.local_world:
        message = f"{folder.absolute()} has less free than twice the files of this node"
        raise MicrobenchError(f"{message}; choose a smaller file_size")
    # Several runs may share the folder, and nodes their process ids.
    file = File(folder, f".microbench-{socket.gethostname()}-{os.getpid()}", size)
    moved = size * process.world

    def values(writing: float, reading: float) -> dict[str, float]:
        return {
            "write_bw": formulas.bandwidth(moved, writing),
            "read_bw": formulas.bandwidth(moved, reading),
        }

    caching = (
        "O_DIRECT"
        if file.is_direct
        else "no O_DIRECT here, so that reads may come from the page cache"
    )
    return Case(
        operations=(file.write, file.read),
        values=values,
        check=file.is_right,
        about=f"{size} bytes a rank in {folder.absolute()}, {caching}",
        repeats=False,
    )
