# SPDX-License-Identifier: Apache-2.0
"""Tests of where packages come from: a wheelhouse with no index to be reached, locks, pip's
configuration for uv.
"""

import http.server
import os
import platform
import re
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.needs import Venv
from llmb_installer.venv import pipconf
from llmb_installer.venv.pip_uv import requirements_of

pytestmark = pytest.mark.timeout(900)  # pip takes its time where the machine has other work

WANTED = Venv(name="both", requirements=("small", "other==1"))
TOOLS = ("uv", "venv")


@pytest.fixture
def unreachable() -> Iterator[str]:
    """The URL of an index at a port where nobody answers: it is ours, and we do not listen."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/simple"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder with a folder for each package, and its URL: the listing of a folder is an index."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(tmp_path / "index"))

        def log_message(self, *arguments: Any) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield tmp_path / "index", f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def no_index(unreachable: str) -> dict[str, str]:
    """Variables by which pip and uv have nothing but the unreachable index."""
    return {
        "PIP_NO_INDEX": "",
        "PIP_FIND_LINKS": "",
        "PIP_INDEX_URL": unreachable,
        "UV_HTTP_RETRIES": "0",
        "PIP_RETRIES": "1",
    }


def lock(site: Any, name: str = "both") -> str:
    return str((site.install / ".llmb" / "locks" / f"{name}.txt").read_text())


@pytest.mark.parametrize("tool", TOOLS)
def test_a_wheelhouse_without_an_index(
    site: Any, wheels: Path, no_index: dict[str, str], tool: str
) -> None:
    site.workload("pretrain_a", WANTED)
    failed = site.run("--config", site.answers(venv_type=tool), "--yes", **no_index)
    assert failed.returncode == 1
    assert "error: venv both:" in failed.stderr
    assert "torch_index" in failed.stderr.partition("hint: ")[2]
    done = site.run(
        "--config", site.answers(venv_type=tool, wheelhouse=str(wheels)), "--yes", **no_index
    )
    assert done.returncode == 0, done.stderr
    assert (
        site.record()["steps"]["venv both"]["facts"]["packages"].items()
        >= {"small": "2", "other": "1"}.items()
    )
    assert re.search(r"^small==2 \\\n\s+--hash=sha256:", lock(site), re.MULTILINE)


@pytest.mark.parametrize("tool", TOOLS)
def test_constraints_of_the_site_choose_versions(
    site: Any, wheels: Path, tmp_path: Path, tool: str
) -> None:
    """uv takes no constraints beside the hashes of a lock."""
    limits = tmp_path / "limits.txt"
    limits.write_text("small<2\n")
    site.workload("pretrain_a", WANTED)
    sources = {"PIP_FIND_LINKS": str(wheels), "PIP_NO_INDEX": "1"}
    done = site.run(
        *("--config", site.answers(venv_type=tool), "--yes"),
        **{"PIP_CONSTRAINT": str(limits), **sources},
    )
    assert done.returncode == 0, done.stderr
    packages = site.record()["steps"]["venv both"]["facts"]["packages"]
    assert packages.items() >= {"small": "1", "other": "1"}.items()


@pytest.mark.parametrize("tool", TOOLS)
def test_the_default_index_for_cpus_is_optional(
    site: Any,
    make_wheel: Callable[..., Path],
    served: tuple[Path, str],
    unreachable: str,
    tool: str,
) -> None:
    """Without it torch comes with CUDA's libraries, and a note; an index that the answers name is
    required.
    """
    make_wheel(served[0] / "torch", "torch", "2.13.0", "nvidia_small")
    make_wheel(served[0] / "nvidia-small", "nvidia_small", "1")
    site.workload("pretrain_a", Venv(name="one", requirements=("torch==2.13.0",)))
    away = {
        "PIP_FIND_LINKS": "",
        "PIP_NO_INDEX": "",
        "PIP_INDEX_URL": served[1],
        "UV_NO_CONFIG": "1",
    }
    away |= {"HTTPS_PROXY": unreachable.removesuffix("/simple"), "UV_HTTP_RETRIES": "0"}
    named = site.run(
        "--config", site.answers(venv_type=tool, torch_cpu_index=unreachable), "--yes", **away
    )
    assert named.returncode == 1, "that index was asked for by name"
    assert unreachable in named.stderr
    done = site.run("--config", site.answers(venv_type=tool), "--yes", **away)
    assert done.returncode == 0, done.stderr
    (note,) = [line for line in done.stderr.splitlines() if line.startswith("note:")]
    assert ("venv one:" in note, "https://download.pytorch.org/whl/cpu" in note) == (True, True)
    assert (
        site.record()["steps"]["venv one"]["facts"]["packages"].items()
        >= {"nvidia_small": "1"}.items()
    )
    assert site.run("verify", "--deep", "--install", site.install).returncode == 0


def test_a_wheelhouse_that_is_not_there(site: Any, wording: Callable[..., None]) -> None:
    site.workload("pretrain_a", WANTED)
    done = site.run("--config", site.answers(wheelhouse="/nowhere/wheels"), "--yes")
    assert done.returncode == 1
    wording("llmb-install", done.stderr)


@pytest.mark.parametrize(("first", "second"), [("venv", "uv")])
def test_the_lock_is_kept(
    site: Any, make_wheel: Callable[..., Path], tmp_path: Path, first: str, second: str
) -> None:
    """A later installation takes the same packages, by the other tool too, until the lock is
    deleted.
    """
    folder = tmp_path / "wheelhouse"
    make_wheel(folder, "small", "1")
    make_wheel(folder, "other", "1")
    site.workload("pretrain_a", WANTED)
    answers = site.answers(venv_type=first, wheelhouse=str(folder))
    assert site.run("--config", answers, "--yes").returncode == 0
    before = lock(site)
    make_wheel(folder, "small", "2")
    shutil.rmtree(site.install / "venvs")
    again = site.run("--config", site.answers(venv_type=second, wheelhouse=str(folder)), "--yes")
    assert again.returncode == 0, again.stderr
    assert site.record()["steps"]["venv both"]["facts"]["packages"]["small"] == "1"
    assert lock(site) == before

    (site.install / ".llmb" / "locks" / "both.txt").unlink()
    shutil.rmtree(site.install / "venvs")
    assert site.run("--config", answers, "--yes").returncode == 0
    assert site.record()["steps"]["venv both"]["facts"]["packages"]["small"] == "2"


@pytest.mark.parametrize("tool", TOOLS)
def test_a_package_that_is_not_what_the_lock_says(
    site: Any, make_wheel: Callable[..., Path], tmp_path: Path, tool: str
) -> None:
    folder = tmp_path / "wheelhouse"
    make_wheel(folder, "small", "1")
    make_wheel(folder, "other", "1")
    site.workload("pretrain_a", WANTED)
    assert site.run("--config", site.answers(wheelhouse=str(folder)), "--yes").returncode == 0
    make_wheel(folder, "small", "1", "other")
    shutil.rmtree(site.install / "venvs")
    done = site.run("--config", site.answers(venv_type=tool, wheelhouse=str(folder)), "--yes")
    assert done.returncode == 1
    assert ".llmb/locks" in done.stderr
    assert site.leftovers() == []


@pytest.mark.parametrize("archive", [{"hashes": {"sha256": "ab"}}, {"hash": "sha256=ab"}])
def test_hashes_as_every_pip_reports_them(archive: dict[str, Any]) -> None:
    """Debian 12 has pip 23.0, which reports the older form."""
    item = {
        "metadata": {"name": "Small_One", "version": "2"},
        "is_direct": False,
        "download_info": {
            "url": "file:///wheels/small_one-2-py3-none-any.whl",
            "archive_info": archive,
        },
    }
    assert requirements_of([item]) == (("small-one==2 --hash=sha256:ab",), ())


PIP_FILE = """\
[global]
index-url = https://host/simple
extra-index-url =
    https://one/simple
    https://user:word@two/simple
trusted-host = host
cert = /etc/site.pem
[install]
find-links = /wheels /more
no-cache-dir = yes
"""


def test_pips_configuration_for_uv(tmp_path: Path) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "pip.conf").write_text(PIP_FILE)
    environ = {
        "HOME": "/nobody",
        "XDG_CONFIG_HOME": str(tmp_path),
        "PIP_TIMEOUT": "99",
        "UV_INDEX_STRATEGY": "mine",
    }
    found = pipconf.uv_variables({**environ, "PIP_CERT": "/own.pem"})
    assert found["UV_DEFAULT_INDEX"] == "https://host/simple"
    assert found["UV_INDEX"] == "https://one/simple https://user:word@two/simple"
    assert found["UV_INSECURE_HOST"] == "host"
    assert found["UV_FIND_LINKS"] == "/wheels,/more"
    assert found["UV_NO_CACHE"] == "1"
    assert found["UV_HTTP_TIMEOUT"] == "99"
    assert found["SSL_CERT_FILE"] == "/own.pem"
    assert "UV_INDEX_STRATEGY" not in found
    assert (
        pipconf.for_uv(environ, offline=True)
        .keys()
        .isdisjoint({"UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS"})
    )


def test_no_configuration_file_is_read() -> None:
    assert pipconf.settings({"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}) == {
        "config-file": os.devnull,
        "no-index": "1",
    }
    assert pipconf.no_index({"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"})
    assert not pipconf.no_index({"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "0"})


def test_an_index_whose_url_holds_a_password_is_in_no_argument_or_log(
    site: Any, wheels: Path, tmp_path: Path
) -> None:
    """uv gets it in variables only; its log does not show it."""
    site.workload("pretrain_a", WANTED)
    url = "http://reader:correct-horse@127.0.0.1:9/simple"
    done = site.run(
        PIP_NO_INDEX="", PIP_INDEX_URL=url, PIP_FIND_LINKS=str(wheels), UV_HTTP_RETRIES="0"
    )
    assert done.returncode == 1
    log = (site.install / ".llmb" / "logs" / "venv-both.log").read_text()
    assert "correct-horse" not in done.stderr + done.stdout + log


@pytest.mark.parametrize("tool", TOOLS)
def test_the_python_of_the_answers(site: Any, tool: str, wording: Callable[..., None]) -> None:
    site.workload("pretrain_a", WANTED)
    done = site.run("--config", site.answers(venv_type=tool, python="3.7"), "--yes")
    assert done.returncode == 1
    wording("llmb-install", done.stderr)
    assert not site.install.exists()
    done = site.run("--config", site.answers(venv_type=tool, python="/nowhere/python"), "--yes")
    wording("llmb-install", done.stderr)


def test_a_shim_that_does_not_run_is_skipped(site: Any, tmp_path: Path) -> None:
    """pyenv has one on PATH for each version, also for one that it does not run."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / f"python{version}").write_text("#!/bin/sh\nexit 127\n")
    (shims / f"python{version}").chmod(0o755)
    site.workload("pretrain_a", WANTED)
    path = f"{shims}{os.pathsep}{site.environ['PATH']}"
    done = site.run("--config", site.answers(python=version), "--yes", PATH=path)
    assert done.returncode == 0, done.stderr


def test_another_architecture(site: Any, wording: Callable[..., None]) -> None:
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    site.workload("pretrain_a", WANTED)
    slurm = {"cluster_type": "slurm", "slurm": {"container": "none"}}
    done = site.run("--config", site.answers(node_architecture=other, **slurm), "--yes")
    assert done.returncode == 1
    wording(
        "llmb-install",
        done.stderr[done.stderr.index("error:") :],
        {other: "<other>", platform.machine(): "<here>"},
    )


def test_without_conda(site: Any, wording: Callable[..., None]) -> None:
    site.workload("pretrain_a", WANTED)
    done = site.run("--config", site.answers(venv_type="conda"), "--yes", PATH="/usr/bin:/bin")
    assert done.returncode == 1
    wording("llmb-install", done.stderr)


CONDA = """\
#!/bin/sh
# A fake of conda: `create ... --prefix DIR ...` makes an environment by Python's own venv.
echo "$@" > "{noted}"
while [ "$1" != --prefix ]; do shift; done
exec "{python}" -m venv --without-pip "$2"
"""


def test_by_conda(site: Any, wheels: Path, tmp_path: Path) -> None:
    """conda makes the environment with the Python of the answers; pip or uv install the
    packages.
    """
    conda, noted = tmp_path / "bin" / "conda", tmp_path / "noted"
    conda.parent.mkdir()
    conda.write_text(CONDA.format(python=sys.executable, noted=noted))
    conda.chmod(0o755)
    site.workload("pretrain_a", WANTED)
    path = f"{conda.parent}{os.pathsep}{site.environ['PATH']}"
    answers = site.answers(venv_type="conda", python="3.12", wheelhouse=str(wheels))
    done = site.run("--config", answers, "--yes", PATH=path)
    assert done.returncode == 0, done.stderr
    assert noted.read_text().split()[:4] == ["create", "--yes", "--quiet", "--prefix"]
    assert noted.read_text().endswith(" python=3.12 pip\n")
    facts = site.record()["steps"]["venv both"]["facts"]
    assert facts["made_by"] == "conda"
    assert facts["packages"]["small"] == "2"
    assert site.run("verify", "--deep", "--install", site.install).returncode == 0
