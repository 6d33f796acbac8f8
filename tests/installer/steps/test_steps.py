# SPDX-License-Identifier: Apache-2.0
"""Tests of single steps with real parts: files of a hub on loopback, repositories of the real git,
a full disk.
"""

import errno
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.needs import HubAsset, Repo, Venv
from llmb.core.shell import StoppedError
from llmb.errors import LlmbError, describe
from llmb_installer import hub as assets
from llmb_installer.execution.runner import Runner
from llmb_installer.hub import AssetStep
from llmb_installer.planning.costs import RESERVE, find_costs
from llmb_installer.step import BuildContext, Commands
from llmb_installer.steps import repo
from llmb_installer.steps.repo import RepoStep
from llmb_testing.hub import COMMIT, SmallHub

CONTENT = random.Random(1).randbytes(3_500_000)


class Watched:
    """Progress that a test reads; with ``after`` bytes the user interrupts."""

    def __init__(self, after: int | None = None) -> None:
        self.of, self.bytes, self.after = 0, 0, after

    def total(self, bytes: int) -> None:
        self.of = bytes

    def advance(self, bytes: int) -> None:
        self.bytes += bytes
        if self.after is not None and self.bytes >= self.after:
            raise StoppedError("interrupted")

    def say(self, text: str) -> None:
        pass


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    environ = {
        **os.environ,
        "NO_PROXY": "127.0.0.1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    return BuildContext(
        install=tmp_path / "install",
        environ=environ,
        home=tmp_path,
        log=tmp_path / "step.log",
        progress=Watched(),
        runner=Runner(),
        stop=threading.Event(),
    )


@pytest.fixture
def asset(context: BuildContext) -> AssetStep:
    return AssetStep(
        need=HubAsset(repository="team/model", files=("weights.bin", "sub/x.json")),
        install=context.install,
    )


@pytest.fixture
def full_hub(hub: SmallHub) -> SmallHub:
    hub.add("team/model", "weights.bin", CONTENT)
    hub.add("team/model", "sub/x.json", b"{}")
    return hub


def at(context: BuildContext, hub: SmallHub, **changes: Any) -> BuildContext:
    return replace(context, environ={**context.environ, "HF_ENDPOINT": hub.url}, **changes)


def test_files_of_a_hub(asset: AssetStep, context: BuildContext, full_hub: SmallHub) -> None:
    where = at(context, full_hub)
    assert asset.check(where).fetch == len(CONTENT) + 2
    facts = asset.build(where)
    assert (asset.path / "weights.bin").read_bytes() == CONTENT
    assert facts["commit"] == COMMIT
    assert {
        path.split("/resolve/")[1].split("/")[0]
        for method, path, _ in full_hub.asked
        if method == "GET"
    } == {COMMIT}
    watched = where.progress
    assert isinstance(watched, Watched)
    assert (watched.bytes, watched.of) == (len(CONTENT) + 2,) * 2
    assert assets.verify(asset.name, facts, context.install, deep=False) == []
    (asset.path / "sub" / "x.json").write_text("[]")
    (changed,) = assets.verify(asset.name, facts, context.install, deep=False)
    assert (changed.code, changed.value) == ("file-changed", f"{asset.path}/sub/x.json")
    assets.remove(asset.name, facts, context.install)
    assert not assets.is_there(asset.name, facts, context.install)


def test_optional_files_come_where_they_are(context: BuildContext, full_hub: SmallHub) -> None:
    need = HubAsset(
        repository="team/model", files=("weights.bin",), optional=("sub/x.json", "gone.json")
    )
    step, where = AssetStep(need=need, install=context.install), at(context, full_hub)
    assert step.check(where).fetch == len(CONTENT) + 2
    facts = step.build(where)
    assert {*facts["files"]} == {"weights.bin", "sub/x.json"}
    assert assets.verify(step.name, facts, context.install, deep=True) == []
    wanted = replace(step, need=replace(need, files=("weights.bin", "gone.json")))
    with pytest.raises(LlmbError) as caught:
        wanted.check(where)
    assert (caught.value.code, caught.value.key.rpartition("/")[2]) == ("file-missing", "gone.json")


def test_a_busy_hub_and_cut_connections(
    asset: AssetStep, context: BuildContext, full_hub: SmallHub
) -> None:
    full_hub.busy, full_hub.cut = 2, 2
    asset.build(at(context, full_hub))
    assert (asset.path / "weights.bin").read_bytes() == CONTENT
    assert any(asked is not None for _, _, asked in full_hub.asked), "a cut download is continued"


def test_an_interrupted_download_is_continued(
    asset: AssetStep, context: BuildContext, full_hub: SmallHub
) -> None:
    with pytest.raises(StoppedError):
        asset.build(at(context, full_hub, progress=Watched(after=1)))
    asset.build(at(context, full_hub))
    assert (asset.path / "weights.bin").read_bytes() == CONTENT
    assert any(asked is not None for _, _, asked in full_hub.asked)


@pytest.mark.parametrize(
    ("number", "code", "continues"),
    [(errno.ESTALE, "file-unwritable", True), (errno.EDQUOT, "disk-full", False)],
)
def test_only_a_full_disk_ends_a_partial_download(
    number: int,
    code: str,
    continues: bool,
    asset: AssetStep,
    context: BuildContext,
    full_hub: SmallHub,
) -> None:
    class Failing(Watched):
        def advance(self, bytes: int) -> None:
            if bytes:
                raise OSError(number, os.strerror(number))

    with pytest.raises(LlmbError) as failed:
        asset.build(at(context, full_hub, progress=Failing()))
    assert failed.value.code == code
    assert os.strerror(number) in failed.value.message
    asset.build(at(context, full_hub))
    assert any(asked is not None for _, _, asked in full_hub.asked) == continues


def test_wrong_content_is_not_kept(
    asset: AssetStep, context: BuildContext, full_hub: SmallHub
) -> None:
    full_hub.wrong = bytes(len(CONTENT))
    with pytest.raises(LlmbError) as caught:
        asset.build(at(context, full_hub))
    assert caught.value.code == "file-damaged"
    assert not asset.path.exists()
    full_hub.wrong = None
    asset.build(at(context, full_hub))
    assert (asset.path / "weights.bin").read_bytes() == CONTENT


def test_a_gated_repository(
    asset: AssetStep, context: BuildContext, full_hub: SmallHub, wording: Any
) -> None:
    """Each of: no token is named, it is not set, it is refused; its value is in no message."""
    full_hub.token = "open-sesame"
    gated = replace(asset, need=replace(asset.need, secret="HF_TOKEN"))
    where = at(context, full_hub)
    environ = {name: value for name, value in where.environ.items() if name != "HF_TOKEN"}
    with pytest.raises(LlmbError) as closed:
        asset.check(where)
    with pytest.raises(LlmbError) as missing:
        gated.check(replace(where, environ=environ))
    with pytest.raises(LlmbError) as refused:
        gated.check(replace(where, environ={**environ, "HF_TOKEN": "wrong-word"}))
    assert [(error.value.code, error.value.key) for error in (closed, missing, refused)] == [
        ("credentials-missing", f"{full_hub.url}/team/model"),
        ("credentials-missing", "HF_TOKEN"),
        ("credentials-refused", "HF_TOKEN"),
    ]
    texts = [describe(error.value) for error in (closed, missing, refused)]
    wording("llmb-install", "\n".join(texts), {full_hub.url: "https://hub.example"})
    assert "wrong-word" not in refused.value.message + str(refused.value.hint)
    assert (
        gated.check(replace(where, environ={**environ, "HF_TOKEN": "open-sesame"})).fetch
        == len(CONTENT) + 2
    )


@pytest.fixture
def origin(tmp_path: Path, context: BuildContext) -> tuple[str, str]:
    """A repository of the real git, and the commit before its last."""
    if shutil.which("git") is None:
        pytest.skip("no git here: apt-get install git")
    folder = tmp_path / "origin.git"
    folder.mkdir()
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]

    def git(*arguments: str) -> str:
        argv = ["git", "-C", str(folder), *identity, *arguments]
        return subprocess.run(
            argv, env=context.environ, capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "--quiet")
    for number in range(2):
        (folder / "file").write_text(f"{number}\n")
        git("add", "file")
        git("commit", "--quiet", "-m", f"{number}")
    return folder.as_uri(), git("rev-parse", "HEAD~1")


def test_a_repository_at_a_commit(context: BuildContext, origin: tuple[str, str]) -> None:
    url, commit = origin
    step = RepoStep(need=Repo(url=url, commit=commit), folder=context.install / "repos")
    assert step.name == f"origin-{commit[:12]}"
    step.check(context)
    facts = step.build(context)
    assert (step.path / "file").read_text() == "0\n"
    assert repo.verify(step.name, facts, context.install, deep=True) == []
    (step.path / "file").write_text("mine\n")
    assert repo.verify(step.name, facts, context.install, deep=False) == []
    (changed,) = repo.verify(step.name, facts, context.install, deep=True)
    assert (changed.code, changed.value) == ("folder-changed", ("file",))
    assert step.build(context) == facts
    assert repo.verify(step.name, facts, context.install, deep=True) == []
    repo.remove(step.name, facts, context.install)
    assert not repo.is_there(step.name, facts, context.install)


def test_a_commit_that_is_not_there(context: BuildContext, origin: tuple[str, str]) -> None:
    step = RepoStep(need=Repo(url=origin[0], commit="0" * 40), folder=context.install / "repos")
    with pytest.raises(LlmbError) as failed:
        step.build(context)
    assert (failed.value.code, failed.value.key) == ("program-failed", "git checkout")
    assert [*(context.install / "repos").iterdir()] == []


# bytes that one file may have, in place of a full disk where no small one can be mounted
LIMIT = 4_000_000

LIMITED = f"""
import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT}, {LIMIT}))
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of 8 MB; None where none may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    mounted = (
        shutil.which("mount") is not None
        and subprocess.run(argv, capture_output=True, check=False).returncode == 0
    )
    yield folder if mounted else None
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def full(site: Any, hub: SmallHub) -> Any:
    """Two workloads, one of which needs 12 MB that its hub did not announce."""
    hub.silent = True
    hub.add("team/big", "weights.bin", random.Random(2).randbytes(12_000_000))
    site.workload("pretrain_big", HubAsset(repository="team/big", files=("weights.bin",)))
    site.workload("pretrain_small", Venv(name="small", requirements=("small==1",)))
    site.environ["HF_ENDPOINT"] = hub.url
    return site


def test_a_disk_that_becomes_full(full: Any, hub: SmallHub, small_disk: Path | None) -> None:
    """The step reports it, leaves no partial file, and succeeds with the same command once there is
    space.
    """
    argv = full.argv
    if small_disk is not None:
        full.install, word, wrapped = small_disk / "install", "No space left on device", []
    else:
        word, wrapped = "File too large", [sys.executable, "-c", LIMITED]
    done = subprocess.run(
        [*wrapped, *argv()],
        env=full.environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1
    assert re.search(rf"weights\.bin .*{word}\nhint: ", done.stderr)
    assert "Traceback" not in done.stderr
    hub.add("team/big", "weights.bin", b"small by now")
    again = full.run()
    assert again.returncode == 0, again.stderr
    assert full.leftovers() == []
    assert full.run("verify", "--deep", "--install", full.install).returncode == 0


def test_the_hint_is_the_full_disk_whatever_a_program_prints(
    context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's venv only reports that ensurepip failed."""
    commands = Commands(context=context, environ={})
    failing = ["sh", "-c", "echo ensurepip; exit 1"]
    with pytest.raises(LlmbError) as raised:
        commands.run("it", failing)
    assert "python3-venv" in str(raised.value.hint)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(1, 1, 3_000))
    with pytest.raises(LlmbError) as raised:
        commands.run("it", failing)
    assert raised.value.code == "program-failed"
    assert re.search(
        rf"{re.escape(str(context.log.parent))}\b.* 3\.0 kB .*; ", str(raised.value.hint)
    )


def test_a_hub_behind_an_unreachable_proxy(
    asset: AssetStep, context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy is named, with its port and without its password."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:hidden@127.0.0.1:{port}")
        with pytest.raises(LlmbError) as raised:
            asset.check(replace(context, environ={"HF_ENDPOINT": "https://hub.example"}))
    error = raised.value
    assert (error.code, error.key, error.value) == ("host-unreachable", "hub.example", "refused")
    assert f"proxy 127.0.0.1:{port}:" in error.message
    assert "HF_ENDPOINT" in str(error.hint)


def test_a_plan_that_does_not_fit(
    context: BuildContext, full_hub: SmallHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a fault before anything starts; files on one disk are counted together."""
    needs = [
        HubAsset(repository="team/model", files=("weights.bin",), revision=name)
        for name in ("a", "b")
    ]
    steps = [AssetStep(need=need, install=context.install) for need in needs]
    where = at(context, full_hub)

    def with_free(free: int) -> list[tuple[str, object]]:
        monkeypatch.setattr(
            shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(free, 0, free)
        )
        return [
            (fault.code, fault.value) for fault in find_costs(steps, context.install, where).faults
        ]

    assert with_free(RESERVE + 2 * len(CONTENT)) == []
    assert with_free(RESERVE + 2 * len(CONTENT) - 1) == [("disk-too-small", 2 * len(CONTENT))]
