# SPDX-License-Identifier: Apache-2.0
"""Runs Python programs in processes forked from one that has imported their modules, so that none
imports them again.

Such a process has its own arguments, environment, folder, standard streams and exit code, as any
other.
"""

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

_FIRST_BYTES = 8  # of a request: the length of the rest
_BEFORE_MAIN = ("LANG", "LANGUAGE", "LC_", "PYTHON")  # a Python reads these before it runs anything


class ForkServer:
    """A process that has imported ``modules``, those in packages called ``NAME.*`` too, in a
    ``with`` statement.

    ``environ`` is the usual environment of the programs, and ``python`` (3.11 or newer) runs them.
    """

    def __init__(
        self, modules: Sequence[str], environ: Mapping[str, str], python: str = sys.executable
    ) -> None:
        self._modules, self._environ, self._python = modules, environ, python

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE  # what Python's streams do depends on what they are at its start
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("")  # Linux chooses a name
            listener.listen()
            self._address, number = listener.getsockname(), listener.fileno()
            argv = [self._python, "-P", __file__, str(number), *self._modules]
            self._process = subprocess.Popen(
                argv,
                env=self._environ,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                text=True,
                pass_fds=[number],
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # it ends where its standard input does

    def run(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        stdin: IO[bytes] | int = subprocess.DEVNULL,
        timeout: float = 600.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a script, or ``-m`` and a module, without a terminal, as ``subprocess.run`` does.

        A new Python runs it where ``env`` changes what a Python reads before it runs anything.
        Raises subprocess.TimeoutExpired after ``timeout`` seconds.
        """
        if _before_main(env) != _before_main(self._environ):
            argv = [self._python, *arguments]
            return subprocess.run(
                argv,
                env=env,
                cwd=cwd,
                stdin=stdin,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        try:
            return self._fork(arguments, env, cwd or Path.cwd(), stdin, timeout)
        except ConnectionError:
            raise RuntimeError(f"the fork server ended: {self._process.communicate()[1]}") from None

    def _fork(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        stdin: IO[bytes] | int,
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        with contextlib.ExitStack() as stack:
            line = stack.enter_context(socket.socket(socket.AF_UNIX))
            line.connect(self._address)
            given = (
                stack.enter_context(Path(os.devnull).open("rb"))
                if isinstance(stdin, int)
                else stdin
            )
            (out, out_end), (err, err_end) = _pipe(stack), _pipe(stack)
            request = json.dumps(
                {"arguments": [*arguments], "env": dict(env), "cwd": str(cwd)}
            ).encode()
            first = len(request).to_bytes(_FIRST_BYTES, "big")
            socket.send_fds(line, [first], [given.fileno(), out_end.fileno(), err_end.fileno()])
            line.sendall(request)
            out_end.close()
            err_end.close()
            answer, printed, errors = _read_all(
                [line.fileno(), out.fileno(), err.fileno()], arguments, timeout
            )
        _, _, code = answer.decode().partition("\n")
        if not code:
            raise ConnectionResetError
        return subprocess.CompletedProcess([*arguments], int(code), _text(printed), _text(errors))


def _before_main(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the files that a Python reads before it runs anything, apart from its search path."""
    names = {name for name in environ if name.startswith(_BEFORE_MAIN) and environ[name]} - {
        "PYTHONPATH"
    }
    return {name: environ[name] for name in names}


def _pipe(stack: contextlib.ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    read, write = os.pipe()
    return stack.enter_context(os.fdopen(read, "rb")), stack.enter_context(os.fdopen(write, "wb"))


def _read_all(descriptors: Sequence[int], arguments: Sequence[str], timeout: float) -> list[bytes]:
    """Return the bytes of each descriptor until its end.

    The first one begins with the id of the process that is killed after ``timeout`` seconds.
    """
    read = dict.fromkeys(descriptors, b"")
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(deadline - time.monotonic(), 0.0))
            if not ready:
                os.kill(int(read[descriptors[0]].split(b"\n")[0]), signal.SIGKILL)
                raise subprocess.TimeoutExpired([*arguments], timeout)
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                read[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
    return [*read.values()]


def _text(data: bytes) -> str:
    return io.TextIOWrapper(io.BytesIO(data)).read()


def _serve(listener: socket.socket) -> socket.socket | None:
    """Fork a process for each connection. Return the connection in it, and in the server None at
    the end of the input.
    """
    lines: dict[int, socket.socket] = {}  # by process id
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    line, _ = listener.accept()
                    pid = os.fork()
                    if not pid:
                        for other in lines.values():
                            other.close()
                        return line
                    line.sendall(f"{pid}\n".encode())
                    lines[pid] = line
                    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, data=pid)
                elif key.data is None:
                    return None
                else:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _, status = os.waitpid(key.data, 0)
                    with lines.pop(key.data) as line, contextlib.suppress(ConnectionError):
                        line.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def _become(line: socket.socket) -> None:
    """Take the streams, folder, environment and arguments of the request."""
    first, descriptors, _, _ = socket.recv_fds(line, _FIRST_BYTES, 3)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    with line, line.makefile("rb") as stream:
        request = json.loads(stream.read(int.from_bytes(first, "big")))
    locale = os.environ.get("LC_CTYPE")
    os.environ.clear()
    os.environ.update(request["env"])
    if locale is not None:  # Python itself adds it, last, if no variable sets a locale
        os.environ.setdefault("LC_CTYPE", locale)
    os.chdir(request["cwd"])
    sys.argv[:] = request["arguments"]
    folder = "" if sys.argv[0] == "-m" else str(Path(sys.argv[0]).parent)
    folders = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    sys.path[:0] = [folder, *folders]


def _import(name: str) -> None:
    module = importlib.import_module(name.removesuffix(".*"))
    if name.endswith(".*"):
        for inner in pkgutil.walk_packages(module.__path__, f"{module.__name__}."):
            importlib.import_module(inner.name)


def _run() -> int:
    """Run the program of the arguments. Return the exit code, as Python defines it."""
    try:
        if sys.argv[0] == "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def main() -> None:
    """Serve. In each forked process, run its program."""
    number, *modules = sys.argv[1:]
    for name in modules:
        _import(name)
    gc.freeze()  # a collection in a forked process would copy the memory of the server
    with socket.socket(fileno=int(number)) as listener:
        line = _serve(listener)
    if line is not None:
        _become(line)
        code = _run()
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the end of a Python does
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        # a Python that ends clears every module, which takes longer than most programs
        os._exit(code)


if __name__ == "__main__":
    main()
