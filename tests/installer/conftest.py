# SPDX-License-Identifier: Apache-2.0
"""Fixtures: small wheels instead of torch and transformers, an index that can pause, and the real
command.
"""

import base64
import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from llmb.contract.needs import Need, Needs
from llmb_testing.fork_server import ForkServer
from llmb_testing.hub import SmallHub
from llmb_testing.plugin_writer import write_plugin

WHEELS = {
    "torch": ("2.13.0", "2.14.0"),
    "transformers": ("5.23.0",),
    "small": ("1", "2"),
    "other": ("1",),
}


def write_wheel(folder: Path, name: str, version: str, *requires: str) -> Path:
    """Write a wheel with one module that has its version."""
    folder.mkdir(parents=True, exist_ok=True)
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    contents = {
        f"{name}.py": f"__version__ = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    stated = "".join(f"{file},{_hash(text)},{len(text)}\n" for file, text in contents.items())
    contents[f"{info}/RECORD"] = f"{stated}{info}/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in contents.items():
            archive.writestr(file, text)
    return path


def _hash(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return f"sha256={digest.decode().rstrip('=')}"


@pytest.fixture
def heard() -> Iterator[None]:
    """Restores SIGHUP for child processes, in case nohup started the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session")
def make_wheel() -> Callable[..., Path]:
    """``write_wheel``, for tests with other wheels."""
    return write_wheel


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels, for pip's find-links."""
    folder = tmp_path_factory.mktemp("wheels")
    for name, versions in WHEELS.items():
        for version in versions:
            write_wheel(folder, name, version)
    return folder


@pytest.fixture(scope="session")
def environ(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which pip finds only the wheels, by pip's variables."""
    home = tmp_path_factory.mktemp("home")
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"]),
        "HOME": str(home),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_NO_CACHE_DIR": "1",
        "PIP_RETRIES": "0",
        "PIP_DEFAULT_TIMEOUT": "120",
        "NO_PROXY": "127.0.0.1",
    }


@pytest.fixture(scope="session")
def command() -> str:
    """The path of llmb-install."""
    found = shutil.which("llmb-install", path=str(Path(sys.executable).parent))
    assert found is not None, "llmb-install is not installed beside this Python"
    return found


Install = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def installers(
    new_fork_server: Callable[[Mapping[str, str]], ForkServer], environ: dict[str, str]
) -> ForkServer:
    """For commands that have that environment."""
    return new_fork_server(environ)


@pytest.fixture(scope="session")
def run_install(command: str, environ: dict[str, str], installers: ForkServer) -> Install:
    """Runs llmb-install without a terminal; keywords are variables."""

    def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        return installers.run(
            [command, *map(str, arguments)], env={**environ, **variables}, timeout=800
        )

    return run


@pytest.fixture
def answers(tmp_path: Path) -> Callable[..., Path]:
    """Writes an answers file for a machine without a GPU and for pip; keywords are more keys, as
    YAML.
    """

    def write(**keys: str) -> Path:
        path = tmp_path / "answers.yaml"
        lines = {
            "cluster_type": "local",
            "install": str(tmp_path / "install"),
            "gpu_type": "cpu",
            "venv_type": "venv",
            **keys,
        }
        path.write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
        return path

    return write


class Gate:
    """Serves wheels over HTTP, in a ``with`` statement. Requests for the one named ``held`` wait
    until its end.
    """

    def __init__(self, folder: Path, held: str) -> None:
        self.asked, self._open = threading.Event(), threading.Event()
        gate = self

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments, directory=str(folder))

            def do_GET(self) -> None:
                if held in self.path:
                    gate.asked.set()
                    if not gate._open.wait(600):
                        return
                try:
                    super().do_GET()
                except ConnectionError:
                    self.close_connection = True

            def log_message(self, *arguments: Any) -> None:
                """Log nothing: pip has its log."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="session")
def new_gate(wheels: Path) -> Callable[[], Gate]:
    """The wheels over HTTP, with transformers behind the gate."""
    return lambda: Gate(wheels, "transformers-")


class Site:
    """An install directory for workloads whose needs the test chooses, installed by the real
    command with uv.
    """

    def __init__(
        self, folder: Path, command: str, environ: dict[str, str], installers: ForkServer
    ) -> None:
        self.folder, self.install, self.command = folder, folder / "install", command
        self.installers = installers
        self.environ = {**environ, "PYTHONPATH": str(folder / "plugins")}
        self.keys: list[str] = []
        self.settings: dict[str, Any] = {"venv_type": "uv"}

    def workload(self, key: str, *wanted: Need) -> None:
        """Add a plugin with the workload ``key`` and these needs; the answers name all
        workloads.
        """
        write_plugin(self.folder / "plugins", key, Needs(needs=wanted))
        self.keys = [*dict.fromkeys([*self.keys, key])]

    def answers(self, **settings: Any) -> Path:
        """Write the answers file."""
        path = self.folder / "answers.yaml"
        data = {
            "cluster_type": "local",
            "install": str(self.install),
            "gpu_type": "cpu",
            "workloads": self.keys,
            **self.settings,
            **settings,
        }
        path.write_text(yaml.safe_dump(data))
        return path

    def argv(self, *arguments: str | Path) -> list[str]:
        """The command line with these arguments; the default is the whole installation."""
        return [self.command, *map(str, arguments or ("--config", self.answers(), "--yes"))]

    def run(self, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the command."""
        return self.installers.run(
            self.argv(*arguments), env={**self.environ, **variables}, timeout=800
        )

    def record(self) -> Any:
        """The record of the install directory."""
        return json.loads((self.install / ".llmb" / "install.json").read_text())

    def faults(self, *options: str) -> list[tuple[str, str, str]]:
        """Step, code and key of each fault that verify finds."""
        done = self.run("verify", *options, "--format", "json", "--install", self.install)
        faults = json.loads(done.stdout)["faults"]
        assert done.returncode == (1 if faults else 0), done.stderr
        return [(fault["step"], fault["code"], fault["key"]) for fault in faults]

    def leftovers(self) -> list[str]:
        """What a complete installation must not leave: partial files, unused builds and locks."""
        used = {
            path.readlink().name for path in (self.install / "venvs").glob("*") if path.is_symlink()
        }
        builds = [path for path in (self.install / "venvs").glob(".*") if path.name not in used]
        return sorted(
            map(str, [*self.install.rglob("*.part"), *self.install.rglob(".*.part"), *builds])
        )


class Installed:
    """An installation that a test may change. Environments cannot be moved, so each test gets it in
    the same place.
    """

    def __init__(self, site: Site) -> None:
        self._keys, self._site = site.keys, site
        shutil.copytree(site.folder, self._copy, symlinks=True)

    @property
    def _copy(self) -> Path:
        return self._site.folder.with_name(f"{self._site.folder.name}-copy")

    def site(self) -> Site:
        """The installation as it was at first, with the times of its files."""
        shutil.rmtree(self._site.folder)
        shutil.copytree(self._copy, self._site.folder, symlinks=True)
        site = Site(
            self._site.folder, self._site.command, self._site.environ, self._site.installers
        )
        site.keys = [*self._keys]
        return site


@pytest.fixture(scope="module")
def install_once(
    tmp_path_factory: pytest.TempPathFactory,
    command: str,
    environ: dict[str, str],
    installers: ForkServer,
) -> Callable[[dict[str, tuple[Need, ...]]], Installed]:
    """Installs workloads with these needs, by key, for all tests of a module."""

    def install(workloads: dict[str, tuple[Need, ...]]) -> Installed:
        site = Site(tmp_path_factory.mktemp("installed"), command, environ, installers)
        for key, needs in workloads.items():
            site.workload(key, *needs)
        done = site.run()
        assert done.returncode == 0, done.stderr
        return Installed(site)

    return install


@pytest.fixture
def site(tmp_path: Path, command: str, environ: dict[str, str], installers: ForkServer) -> Site:
    """An empty install directory."""
    return Site(tmp_path, command, environ, installers)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[SmallHub]:
    """An empty model hub on loopback."""
    with SmallHub(tmp_path / "hub") as made:
        yield made
