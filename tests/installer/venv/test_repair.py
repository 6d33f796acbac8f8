# SPDX-License-Identifier: Apache-2.0
"""Tests of damaged environments: one package is reinstalled in place, and only what cannot be
repaired is rebuilt.
"""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.needs import Repo, Venv

pytestmark = pytest.mark.timeout(900)  # pip takes its time where the machine has other work

BOTH = Venv(name="both", requirements=("small==1", "other==1"))
TOOLS = ("uv", "venv")


@pytest.fixture
def damaged(site: Any, request: pytest.FixtureRequest) -> Any:
    """An installation to be damaged by the test, by uv unless the test chooses the tool."""
    site.settings = {"venv_type": getattr(request, "param", "uv")}
    site.workload("pretrain_a", BOTH)
    done = site.run()
    assert done.returncode == 0, done.stderr
    return site


def packages(site: Any) -> Path:
    (found,) = (site.install / "venvs" / "both").glob("lib/python3*/site-packages")
    return Path(found)


def build(site: Any) -> str:
    """The folder of the build in use: another one after a rebuild."""
    return str((site.install / "venvs" / "both").readlink())


def faults(site: Any, *options: str) -> list[tuple[str, str, str, Any]]:
    done = site.run("verify", *options, "--format", "json", "--install", site.install)
    rows = json.loads(done.stdout)["faults"]
    assert done.returncode == (1 if rows else 0), done.stderr
    return [(row["step"], row["code"], row["key"], row["value"]) for row in rows]


def in_environment(site: Any, path: Path) -> str:
    return str(path.relative_to(site.install / "venvs" / "both"))


def repair(site: Any) -> None:
    done = site.run("verify", "--deep", "--repair", "--yes", "--install", site.install)
    assert done.returncode == 0, done.stderr
    assert faults(site, "--deep") == []
    assert site.leftovers() == []


@pytest.mark.parametrize("damaged", TOOLS, indirect=True)
def test_a_missing_file_is_named_and_its_package_reinstalled(
    damaged: Any, wording: Callable[..., None]
) -> None:
    module, other = packages(damaged) / "small.py", (packages(damaged) / "other.py").stat().st_ino
    before, lock = build(damaged), (damaged.install / ".llmb/locks/both.txt").read_text()
    module.unlink()
    assert faults(damaged) == [
        ("venv both", "package-damaged", "small", [in_environment(damaged, module)])
    ]
    shown = damaged.run("verify", "--install", damaged.install)
    wording("llmb-install verify", shown.stderr, {f"{module.parent.parent.name}/": "<python>/"})
    repair(damaged)
    assert module.read_text() == "__version__ = '1'\n"
    assert (build(damaged), (packages(damaged) / "other.py").stat().st_ino) == (before, other)
    assert (damaged.install / ".llmb/locks/both.txt").read_text() == lock


def test_the_next_installation_repairs_a_missing_file(
    damaged: Any, wording: Callable[..., None]
) -> None:
    before = build(damaged)
    (packages(damaged) / "small.py").unlink()
    plan = json.loads(
        damaged.run("--config", damaged.answers(), "--dry-run", "--format", "json").stdout
    )
    wording("llmb-install", "\n".join(plan["notes"]))
    assert damaged.run().returncode == 0
    assert faults(damaged, "--deep") == []
    assert build(damaged) == before


@pytest.mark.parametrize("damaged", TOOLS, indirect=True)
def test_a_changed_file_is_never_missing_during_the_repair(damaged: Any) -> None:
    """As a job that imports it would see it: first with the changed content, then with the right
    one.
    """
    module = packages(damaged) / "small.py"
    module.write_text("__version__ = 'changed by hand'\n")
    mapped, ended, missing = module.open(), threading.Event(), list[Path]()

    def watch() -> None:
        while not ended.is_set():
            if not module.exists():
                missing.append(module)

    assert faults(damaged) == [], "only --deep reads contents"
    assert faults(damaged, "--deep") == [
        ("venv both", "package-damaged", "small", [in_environment(damaged, module)])
    ]
    before, watcher = build(damaged), threading.Thread(target=watch)
    watcher.start()
    try:
        repair(damaged)
    finally:
        ended.set()
        watcher.join()
    assert missing == []
    assert build(damaged) == before
    with mapped:
        assert "changed by hand" in mapped.read(), "an open file keeps its content"


@pytest.mark.parametrize("lost", ["RECORD", "METADATA", "all of it"])
def test_a_package_without_its_metadata(damaged: Any, lost: str) -> None:
    info, before = packages(damaged) / "small-1.dist-info", build(damaged)
    if lost == "all of it":
        shutil.rmtree(info)
        (packages(damaged) / "small.py").unlink()
    else:
        (info / lost).unlink()
    ((step, code, package, _),) = faults(damaged)
    assert (step, code, package) == ("venv both", "package-damaged", "small")
    repair(damaged)
    assert build(damaged) == before


@pytest.mark.parametrize("damaged", ["venv"], indirect=True)
@pytest.mark.parametrize("name", ["pip/__init__.py", "../../../bin/pip"])
def test_pip_itself_is_reinstalled_from_pythons_own_wheel(damaged: Any, name: str) -> None:
    path = packages(damaged) / name
    before = build(damaged)
    path.unlink()
    ((_, code, package, _),) = faults(damaged)
    assert (code, package) == ("package-damaged", "pip")
    repair(damaged)
    assert build(damaged) == before
    program = damaged.install / "venvs" / "both" / "bin" / "pip"
    assert subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0


def test_an_added_package_is_not_repairable(
    damaged: Any, make_wheel: Callable[..., Path], tmp_path: Path
) -> None:
    wheel, before = make_wheel(tmp_path, "extra", "1"), build(damaged)
    shutil.unpack_archive(wheel, packages(damaged), "zip")
    assert faults(damaged) == [("venv both", "package-added", "extra", None)]
    assert damaged.run().returncode == 0
    assert build(damaged) == before, "an installation leaves it"
    repair(damaged)
    assert build(damaged) != before


def test_without_its_lock_an_environment_is_rebuilt(damaged: Any) -> None:
    """Whoever deletes it wants the versions chosen again."""
    before = build(damaged)
    (damaged.install / ".llmb/locks/both.txt").unlink()
    (packages(damaged) / "small.py").unlink()
    repair(damaged)
    assert build(damaged) != before


def test_a_repair_that_fails_changes_nothing(damaged: Any) -> None:
    module, before = packages(damaged) / "small.py", build(damaged)
    module.unlink()
    done = damaged.run(
        "verify", "--repair", "--yes", "--install", damaged.install, PIP_FIND_LINKS="/nowhere"
    )
    assert done.returncode == 1
    assert (build(damaged), module.exists(), damaged.leftovers()) == (before, False, [])
    repair(damaged)
    assert build(damaged) == before


@pytest.fixture
def origin(tmp_path: Path, environ: dict[str, str]) -> Repo:
    """A git repository of one commit."""
    folder = tmp_path / "origin"
    folder.mkdir()
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")

    def git(*words: str) -> str:
        argv = ["git", "-C", str(folder), *identity, *words]
        return subprocess.run(
            argv, env=environ, capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "--quiet")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    git("add", "run.sh")
    git("commit", "--quiet", "-m", "one")
    return Repo(url=folder.as_uri(), commit=git("rev-parse", "HEAD"))


def test_verify_answers_the_same_whatever_is_on_path(site: Any, origin: Repo) -> None:
    """uv decides on how environments are made, and git looks into repositories: verify asks
    neither.
    """
    site.settings = {"venv_type": "auto"}
    site.workload("pretrain_a", BOTH, origin)
    assert site.run().returncode == 0

    def answers() -> list[tuple[int, str, str]]:
        words = ("verify", "--deep", "--install", site.install)
        asked = [(*words, "--format", form) for form in ("table", "json")] + [
            ("status", "--install", site.install)
        ]
        done = [[site.run(*one, PATH=path) for one in asked] for path in (site.environ["PATH"], "")]
        first, second = [
            [(one.returncode, one.stdout, one.stderr) for one in each] for each in done
        ]
        assert first == second
        return first

    assert answers()[0][0] == 0
    (tree,) = (site.install / "repos").iterdir()
    (tree / "run.sh").write_text("changed\n")
    (packages(site) / "small.py").unlink()
    assert answers()[0][0] == 1
    assert {(step, code) for step, code, _, _ in faults(site, "--deep")} == {
        ("venv both", "package-damaged"),
        (f"repo {tree.name}", "folder-changed"),
    }
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / ".git" / "llmb-files.json").unlink()  # without it, nobody knows what was checked out
    assert (f"repo {tree.name}", "folder-changed") in {
        (step, code) for step, code, _, _ in faults(site, "--deep")
    }


@pytest.mark.parametrize("tool", TOOLS)
def test_a_shared_installation_is_the_groups_under_a_private_umask(
    site: Any, origin: Repo, tmp_path: Path, tool: str
) -> None:
    site.settings = {"venv_type": tool}
    site.workload("pretrain_a", BOTH, origin)
    site.install.mkdir()
    site.install.chmod(0o2770)
    # filled under this umask: uv copies modes from there
    cache = {"UV_CACHE_DIR": str(tmp_path / "cache")}

    def run(*arguments: str | Path) -> None:
        done = subprocess.run(
            site.argv(*arguments),
            env={**site.environ, **cache},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            umask=0o077,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def closed() -> list[str]:
        """What the group cannot do as the owner does, and what others can do at all."""
        found = [
            (path, path.lstat().st_mode & 0o777)
            for path in site.install.rglob("*")
            if not path.is_symlink()
        ]
        return [
            f"{path} {mode:o}" for path, mode in found if mode >> 6 != mode >> 3 & 0o7 or mode & 0o7
        ]

    run()
    assert closed() == []
    (packages(site) / "small.py").unlink()
    run("verify", "--repair", "--yes", "--install", site.install)
    assert os.access(packages(site) / "small.py", os.R_OK)
    assert closed() == []
