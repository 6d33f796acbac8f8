# SPDX-License-Identifier: Apache-2.0
"""Tests that an installer that is killed at any moment, or twice at once, leaves nothing that the
next one minds.
"""

import contextlib
import fcntl
import os
import random
import select
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from llmb.contract.needs import HubAsset, Task, Venv
from llmb_installer.steps import programs
from llmb_testing.hub import SmallHub

pytestmark = [pytest.mark.slow, pytest.mark.fault("install-interrupts")]

MOMENTS = int(os.environ.get("LLMB_TEST_KILLS", "4"))
LONG_AGO = 946684800  # seconds: what was left then is nobody's any more


@pytest.fixture
def made(site: Any, hub: SmallHub) -> Any:
    """Two environments and two downloads for two workloads, installed nowhere yet."""
    for number, package in enumerate(("small", "other")):
        hub.add(f"team/model{number}", "weights.bin", random.Random(number).randbytes(3_000_000))
        need = HubAsset(repository=f"team/model{number}", files=("weights.bin",))
        site.workload(
            f"pretrain_{package}", Venv(name=package, requirements=(f"{package}==1",)), need
        )
    site.environ["HF_ENDPOINT"] = hub.url
    return site


def assert_whole(site: Any) -> None:
    keys = {
        "venv small",
        "venv other",
        "asset team/model0@main",
        "asset team/model1@main",
        "programs of compute nodes",
    }
    assert set(site.record()["steps"]) == keys
    assert site.leftovers() == []
    checked = site.run("verify", "--deep", "--install", site.install)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.timeout(3600)
@pytest.mark.fault("install-kills")
def test_killed_at_random_moments(made: Any, seen: Callable[..., None]) -> None:
    """Each installation is killed after a random part of the time that a whole one takes, and then
    given again.
    """
    site, moments = made, random.Random(MOMENTS)
    whole, installs = 1.0, site.install
    for number in range(MOMENTS):
        site.install = installs.with_name(f"install{number}")
        argv = site.argv()
        with subprocess.Popen(
            argv, env=site.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as first:
            try:
                first.wait(whole * (0.2 + moments.random()))
            except subprocess.TimeoutExpired:
                first.kill()
        for path in [*site.install.rglob(".*.part")]:
            os.utime(path, (LONG_AGO, LONG_AGO))
        again = site.run()
        seen(tried=1, tracebacks=again.stderr.count("Traceback"), wrong_ends=again.returncode != 0)
        assert again.returncode == 0, again.stderr
        assert_whole(site)


def test_killed_in_the_middle_of_a_download(made: Any, hub: SmallHub) -> None:
    """What was fetched before is not fetched again."""
    site, hub.gate = made, threading.Event()
    with subprocess.Popen(
        site.argv(), env=site.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as first:
        wait_for_bytes(site.install)
        first.kill()
    hub.gate.set()
    hub.asked.clear()
    assert site.run().returncode == 0
    assert_whole(site)
    ranges = [asked for method, _, asked in hub.asked if method == "GET"]
    assert any(asked is not None for asked in ranges)


def wait_for_bytes(install: Path) -> None:
    """Wait until something of a download is on the disk."""
    wait_until(
        lambda: any(path.stat().st_size for path in install.glob("datasets/hub/*/.*.part/*"))
    )


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_two_at_once(made: Any, hub: SmallHub) -> None:
    """The second one names the first, and nothing is damaged."""
    site, hub.gate = made, threading.Event()
    with subprocess.Popen(
        site.argv(), env=site.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as first:
        assert hub.reached.wait(120)
        second = site.run()
        hub.gate.set()
    assert first.returncode == 0
    assert second.returncode == 1
    assert f"process {first.pid}" in second.stderr
    assert_whole(site)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(site: Any, number: int) -> None:
    """Ctrl-C, a batch system or a lost connection ends it with 130 and the programs of its
    steps.
    """
    note = site.folder / "pid"
    site.workload(
        "pretrain_a",
        Venv(name="small", requirements=("small==1",)),
        waiting(f"echo $$ > {note}; sleep 600"),
    )
    with subprocess.Popen(
        site.argv(), env=site.environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as first:
        wait_until(lambda: note.exists() and note.read_text().strip())
        child = psutil.Process(int(note.read_text()))
        below = [child, *child.children(recursive=True)]
        first.send_signal(number)
        _, output = first.communicate(timeout=120)
    assert first.returncode == 130, output
    assert b"Traceback" not in output
    wait_until(lambda: not any(map(is_alive, below)))
    assert {*site.record()["steps"]} == {f"programs {programs.NAME}", "venv small"}
    built = (site.install / "venvs" / "small").readlink()

    site.workload("pretrain_a", Venv(name="small", requirements=("small==1",)), waiting("true"))
    assert site.run().returncode == 0
    assert (site.install / "venvs" / "small").readlink() == built
    assert site.leftovers() == []


def test_an_interrupted_installation_can_be_uninstalled(site: Any) -> None:
    note = site.folder / "pid"
    command = f"echo $$ > {note}; sleep 600"
    site.workload("pretrain_a", Venv(name="small", requirements=("small==1",)), waiting(command))
    with subprocess.Popen(
        site.argv(), env=site.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as first:
        wait_until(lambda: note.exists() and note.read_text().strip())
        first.send_signal(signal.SIGINT)
    assert (site.install / "venvs" / "small").exists()
    half_built = site.install / "venvs" / ".other.0123abcd"
    half_built.mkdir()
    words = ("--install", site.install)
    shown = site.run("uninstall", "--dry-run", *words)
    assert (shown.returncode, half_built.exists()) == (0, True), shown.stderr
    assert "  venv small" in shown.stdout
    assert "cluster_config.yaml" not in shown.stdout
    for removed in ("venv small", "nothing was built"):
        done = site.run("uninstall", "--yes", *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert removed in done.stdout
    assert [*(site.install / "venvs").iterdir()] == []
    assert site.record()["steps"] == {}


def test_what_a_killed_installer_left_running_is_ended_by_the_next_one(site: Any) -> None:
    """Programs of a step are in groups of their own, which nobody kills with the installer."""
    note = site.folder / "pid"
    site.workload("pretrain_a", waiting(f"echo $$ > {note}; sleep 600 & wait"))
    with subprocess.Popen(
        site.argv(), env=site.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as first:
        wait_until(lambda: note.exists() and note.read_text().strip())
        child = psutil.Process(int(note.read_text()))
        wait_until(child.children)
        below = [child, *child.children(recursive=True)]
        first.kill()
    assert all(map(is_alive, below))
    site.workload("pretrain_a", waiting("true"))
    done = site.run()
    assert done.returncode == 0, done.stderr
    assert not any(map(is_alive, below))


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it has ended between the two questions
        return False


def waiting(command: str) -> Task:
    return Task(name="wait", argv=("sh", "-c", command))


def start_on_terminal(site: Any, *, nohup: bool) -> tuple[subprocess.Popen[bytes], int]:
    """Start an installation on a terminal of its own. Return it with the terminal's other end."""
    end, terminal = os.openpty()

    def take() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)

    process = subprocess.Popen(
        site.argv(),
        env=site.environ,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        preexec_fn=take,
    )
    os.close(terminal)
    return process, end


@contextlib.contextmanager
def watched(end: int) -> Iterator[None]:
    """Read what is on the terminal, so that nobody waits to write there. Then it vanishes."""
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            if select.select([end], [], [], 0.05)[0]:
                os.read(end, 1 << 16)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        stop.set()
        reader.join()
        os.close(end)


def test_under_nohup_it_outlives_its_terminal(made: Any, hub: SmallHub) -> None:
    site, hub.gate = made, threading.Event()
    process, end = start_on_terminal(site, nohup=True)
    with watched(end):
        wait_for_bytes(site.install)
    hub.gate.set()
    assert process.wait(300) == 0
    assert_whole(site)


def test_without_its_terminal_it_ends_in_order(site: Any) -> None:
    """It ends the programs of its steps, and records what is finished."""
    note = site.folder / "pid"
    command = f"echo $$ > {note}; sleep 600"
    site.workload("pretrain_a", Venv(name="small", requirements=("small==1",)), waiting(command))
    process, end = start_on_terminal(site, nohup=False)
    with watched(end):
        wait_until(lambda: note.exists() and note.read_text().strip())
    child = psutil.Process(int(note.read_text()))
    assert process.wait(120) == 130
    wait_until(lambda: not is_alive(child))
    assert {*site.record()["steps"]} == {f"programs {programs.NAME}", "venv small"}
    site.workload("pretrain_a", Venv(name="small", requirements=("small==1",)), waiting("true"))
    assert site.run().returncode == 0
    assert site.leftovers() == []


def test_the_terminal_vanishes_during_a_question(made: Any, tmp_path: Path) -> None:
    """Nothing is installed, and no process stays behind that waits for an answer."""
    made.settings.pop("cluster_type", None)
    answers = tmp_path / "empty.yaml"
    answers.write_text("gpu_type: cpu\n")
    end, terminal = os.openpty()

    def take() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = subprocess.Popen(
        [made.command, "--config", str(answers)],
        env={**made.environ, "TERM": "xterm", "NO_COLOR": "1"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        preexec_fn=take,
    )
    os.close(terminal)
    shown = b""
    while b"scheduler" not in shown:
        shown += os.read(end, 1 << 16)
    os.close(end)
    assert process.wait(120) != 0
    assert not made.install.exists()
