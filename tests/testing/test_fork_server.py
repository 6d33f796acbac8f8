# SPDX-License-Identifier: Apache-2.0
"""Tests of the fork server: its processes are like those of a new Python, except that they import
nothing again.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llmb_testing.fork_server import ForkServer

# What a program can see of its process. The parts that fork changes, such as its parent, are not
# among them.
LOOK = """\
import atexit, json, os, sys
atexit.register(print, "at exit")
print(json.dumps({
    "argv": sys.argv, "path": sys.path[0], "name": __name__, "environ": dict(os.environ), "folder": os.getcwd(),
    "stdin": sys.stdin.read(), "streams": [(s.isatty(), s.seekable(), s.encoding) for s in (sys.stdout, sys.stderr)],
}))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(["zipapp"], dict(os.environ)) as made:
        yield made


def script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    "variables", [{}, {"PYTHONPATH": "/some/where"}, {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "7"}]
)
def test_a_program_sees_what_it_sees_in_a_new_python(
    server: ForkServer, tmp_path: Path, variables: dict[str, str]
) -> None:
    _compare_with_new_python(server, tmp_path, {**os.environ, "NOTE": "ü\udc80", **variables})


@pytest.mark.parametrize("locale", [{}, {"LC_CTYPE": "C.UTF-8"}])
def test_a_program_sees_the_same_if_no_language_is_set(
    locale: dict[str, str], tmp_path: Path
) -> None:
    """Python then sets LC_CTYPE itself, unless the Python that started it has done so."""
    environ = {
        name: text for name, text in os.environ.items() if not name.startswith(("LANG", "LC_"))
    }
    environ = {"FIRST": "1", **locale, **environ}
    with ForkServer(["zipapp"], environ) as server:
        _compare_with_new_python(server, tmp_path, environ)


def _compare_with_new_python(server: ForkServer, tmp_path: Path, env: dict[str, str]) -> None:
    argv = [script(tmp_path, LOOK), "one", "two words"]
    (tmp_path / "input").write_text("typed")
    with (tmp_path / "input").open("rb") as stdin:
        forked = server.run(argv, env=env, cwd=tmp_path, stdin=stdin)
    with (tmp_path / "input").open("rb") as stdin:
        new = subprocess.run(
            [sys.executable, *argv],
            env=env,
            cwd=tmp_path,
            stdin=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        new.returncode,
        new.stdout,
        new.stderr,
    )
    assert json.loads(forked.stdout.splitlines()[0])["stdin"] == "typed"


@pytest.mark.parametrize(
    ("text", "code", "printed", "error"),
    [
        ("import sys; sys.exit(3)", 3, "", ""),
        ("import sys; sys.exit('wrong')", 1, "", "wrong"),
        ("raise SystemExit", 0, "", ""),
        ("1 / 0", 1, "", "ZeroDivisionError: division by zero"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15, "", ""),
        ("import threading; threading.Timer(0.1, print, ['late']).start()", 0, "late\n", ""),
    ],
)
def test_how_a_program_ends(
    server: ForkServer, tmp_path: Path, text: str, code: int, printed: str, error: str
) -> None:
    done = server.run([script(tmp_path, text)], env=os.environ)
    assert (done.returncode, done.stdout) == (code, printed)
    assert (done.stderr.splitlines() or [""])[-1] == error


def test_modules_of_the_server_are_not_imported_again(server: ForkServer, tmp_path: Path) -> None:
    text = "import os, sys; print('zipapp' in sys.modules, 'wave' in sys.modules, os.getppid())"
    first, second = (
        server.run([script(tmp_path, text)], env=os.environ).stdout.split() for _ in range(2)
    )
    assert first == second
    assert first[:2] == ["True", "False"]


def test_a_module_is_run_as_by_its_option(server: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(LOOK)
    done = server.run(["-m", "look", "one"], env={**os.environ, "PYTHONPATH": str(tmp_path)})
    seen = json.loads(done.stdout.splitlines()[0])
    assert (seen["argv"], seen["name"]) == ([str(tmp_path / "look.py"), "one"], "__main__")


def test_programs_run_beside_each_other(server: ForkServer, tmp_path: Path) -> None:
    """Each waits for the file of the other."""
    text = (
        "import os, sys, time\nopen(sys.argv[1], 'w').close()\nwhile not"
        " os.path.exists(sys.argv[2]): time.sleep(0.01)"
    )
    path = script(tmp_path, text)
    with ThreadPoolExecutor(2) as pool:
        ends = pool.map(
            lambda pair: server.run([path, *pair], env=os.environ, cwd=tmp_path),
            [("a", "b"), ("b", "a")],
        )
    assert [done.returncode for done in ends] == [0, 0]


def test_a_program_that_takes_too_long_is_killed(server: ForkServer, tmp_path: Path) -> None:
    text = (
        f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()));"
        " time.sleep(600)"
    )
    with pytest.raises(subprocess.TimeoutExpired):
        server.run([script(tmp_path, text)], env=os.environ, timeout=1)
    while Path("/proc", (tmp_path / "pid").read_text() or "self").exists():
        time.sleep(0.01)


def test_a_server_that_does_not_start_is_named() -> None:
    with (
        ForkServer(["no_such_module"], os.environ) as server,
        pytest.raises(RuntimeError, match="no_such_module"),
    ):
        server.run(["script.py"], env=os.environ)
