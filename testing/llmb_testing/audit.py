# SPDX-License-Identifier: Apache-2.0
"""Records what Python code does to the machine: files that it writes, processes that it starts,
addresses it calls.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_WRITES = {
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.link",
    "os.truncate",
    "shutil.rmtree",
}
_PROCESSES = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"}
_CALLS = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind"}
_seen: list[list[str]] = []  # a list for each recording in progress; Python cannot remove a hook
_installed: list[bool] = []


@contextmanager
def recorded() -> Iterator[list[str]]:
    """The effects of the code within, in words. Writing byte code is none."""
    if not _installed:
        sys.addaudithook(_hook)
        _installed.append(True)
    effects: list[str] = []
    _seen.append(effects)
    try:
        yield effects
    finally:
        _seen.remove(effects)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen and (text := _in_words(event, arguments)):
        for effects in _seen:
            effects.append(text)


def _in_words(event: str, arguments: tuple[Any, ...]) -> str:
    if event in _PROCESSES:
        return f"starts a process: {arguments[0]}"
    if event in _CALLS:
        return f"uses the network: {arguments[-1] if event == 'socket.connect' else arguments[0]}"
    if event in _WRITES:
        return (
            ""
            if _is_byte_code(arguments[0])
            else f"changes the file system: {event} {arguments[0]}"
        )
    if event == "open" and _is_writing(arguments) and not _is_byte_code(arguments[0]):
        return f"writes the file {arguments[0]}"
    return ""


def _is_writing(arguments: tuple[Any, ...]) -> bool:
    mode, flags = arguments[1], arguments[2]
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool(isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _is_byte_code(path: object) -> bool:
    """Return True if Python itself writes ``path``, such as compiled modules."""
    text = str(path)
    return (
        "__pycache__" in text
        or text == os.devnull
        or (text.startswith(tempfile.gettempdir()) and ".pyc" in text)
    )
