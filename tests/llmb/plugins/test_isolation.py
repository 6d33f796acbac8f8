# SPDX-License-Identifier: Apache-2.0
"""Tests of the guard around plugins: Ctrl-C, plugins that cannot be interrupted, tracebacks, slow
hooks, commands.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.cli import app
from llmb.errors import KeyFaultError, PluginError, UsageError
from llmb.plan.read_config import no_type
from llmb.plugins import guard
from llmb_installer.answers.schema import check_cluster_type

Install = Callable[..., str]
Command = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., "subprocess.Popen[str]"]

HANGS = """
import os, sys, time
from llmb.api import hookimpl

@hookimpl
def llmb_commands():
    os.write(2, b"hanging\\n")
    while True:
        try:
            time.sleep(600)
        except {caught}:
            pass
"""


def started(
    install: Install, llmb_start: Start, site_packages: Path, caught: str, **more: str
) -> subprocess.Popen[str]:
    """llmb-run in a plugin that hangs and catches ``caught``."""
    install("hangs", HANGS.format(caught=caught))
    process = llmb_start("list", PYTHONPATH=str(site_packages), **more)
    assert process.stdout is not None
    while process.stdout.readline() != "hanging\n":
        assert process.poll() is None
    return process


@pytest.mark.parametrize(("caught", "presses"), [("ZeroDivisionError", 1), ("BaseException", 3)])
def test_ctrl_c_always_ends_the_command(
    caught: str, presses: int, install: Install, llmb_start: Start, site_packages: Path
) -> None:
    process = started(install, llmb_start, site_packages, caught)
    while presses > 0 and process.poll() is None:
        process.send_signal(signal.SIGINT)
        presses -= 1
        if presses:
            threading.Event().wait(0.3)  # signals of one kind that come together are one
    output, _ = process.communicate(timeout=60)
    assert output.splitlines()[-1] == "interrupted"
    # a press when the command has ended: 130 in a shell as well
    assert process.returncode in (130, -signal.SIGINT)


def test_a_plugin_that_catches_everything_ends_the_command_and_is_named(
    install: Install,
    llmb_start: Start,
    site_packages: Path,
    wording: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = started(
        install, llmb_start, site_packages, "BaseException", LLMB_PLUGIN_TIMEOUT="0.1"
    )
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    wording("bad plugins", output)


def test_a_ctrl_c_that_a_plugin_catches_arrives_after_it() -> None:
    def swallow() -> None:
        with guard.guarded("a:b", "llmb_setup"), contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        swallow()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_ctrl_c_that_a_handler_only_notes_is_no_interrupt() -> None:
    """As in a submission, which continues until a second one."""
    noted: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        with guard.guarded("a:b", "llmb_setup"):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert noted == [signal.SIGINT]


def test_in_other_threads_code_has_no_limit_and_its_failure_names_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    errors: list[PluginError] = []

    def work() -> None:
        try:
            with guard.guarded("a:b", "submit", limited=False):
                print("from a thread")
                raise SystemExit(3)
        except PluginError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("data")
    assert [(error.code, error.key, error.value) for error in errors] == [
        ("plugin-failed", "submit", "a:b")
    ] * 8
    printed = capfd.readouterr()
    assert (printed.out, printed.err.count("from a thread")) == ("data\n", 8)


@pytest.mark.parametrize("text", ["abc", "0", "-1", "inf", "nan"])
def test_a_limit_that_is_no_number_is_a_usage_error(
    text: str, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMB_PLUGIN_TIMEOUT", text)
    with pytest.raises(UsageError) as caught:
        guard.allowed_seconds()
    assert (caught.value.key, caught.value.value) == ("LLMB_PLUGIN_TIMEOUT", text)
    assert llmb_here("list").returncode == 2


SLOW = (
    "import time\ntime.sleep(0.01)\nfrom llmb.api import hookimpl\n@hookimpl\ndef llmb_clusters():"
    " return []\n"
)


def test_a_slow_import_is_named_once(
    install: Install,
    llmb_here: Command,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = install(
        "slow",
        SLOW,
    )
    monkeypatch.setattr(guard, "SLOW_SECONDS", 0.005)
    app.load()
    printed = capsys.readouterr().err
    assert (
        len([line for line in printed.splitlines() if f"{source} is slow: import took" in line])
        == 1
    )


@pytest.mark.parametrize("limited", [True, False])
def test_a_call_that_takes_long_is_named_while_it_runs(
    limited: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "LONG_SECONDS", 0.01)
    printed = ""
    with guard.guarded("a:b", "poll", limited=limited):
        while "plugin a:b has been in poll" not in printed:
            threading.Event().wait(0.01)
            printed += capfd.readouterr().err
    assert (printed + capfd.readouterr().err).count("a:b has been in poll") == 1


def test_a_limit_holds_after_the_call_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LONG_SECONDS", 0.01)
    monkeypatch.setenv("LLMB_PLUGIN_TIMEOUT", "0.1")
    with pytest.raises(PluginError) as caught, guard.guarded("a:b", "llmb_setup"):
        threading.Event().wait(60)
    assert caught.value.code == "plugin-timeout"


def test_ctrl_c_names_the_plugin_that_was_running(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "SLOW_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt), guard.guarded("a:b", "cancel", limited=False):
        os.kill(os.getpid(), signal.SIGINT)
    assert "plugin a:b has been in cancel" in capfd.readouterr().err


LOUD = """
import atexit, json, sys
from llmb.api import hookimpl

{first}

@hookimpl
def llmb_clusters():
    return []
"""
CHANGES = {
    "recursion": ("sys.setrecursionlimit(150)", "recursion limit"),
    "json": ("json.dumps = lambda *args, **options: 'nonsense'", "dumps of the module json"),
    "a method of json": (
        "json.JSONEncoder.encode = lambda self, value: 'nonsense'",
        "JSONEncoder.encode of the module json",
    ),
    "exit": ("atexit.register(print, 'bye')", "prints when llmb ends:"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_plugin_that_changes_the_process_is_named_and_the_command_is_right(
    change: str, install: Install, llmb_program: str, site_packages: Path
) -> None:
    line, named = CHANGES[change]
    source = install("loud", LOUD.format(first=line))

    def listed(**variables: str) -> subprocess.CompletedProcess[str]:
        words = [llmb_program, "list", "--format", "json"]
        environment = {**os.environ, **variables}
        return subprocess.run(words, capture_output=True, text=True, check=True, env=environment)

    done = listed(PYTHONPATH=str(site_packages))
    assert done.stdout == listed().stdout
    (warning,) = [line for line in done.stderr.splitlines() if "warning: " in line]
    assert source in warning
    assert named in warning


FAILS = "def inner():\n    raise KeyError('deep')\n\ninner()\n"


@pytest.mark.parametrize("how", ["--debug", "list --debug", "LLMB_DEBUG"])
def test_debug_shows_the_traceback(
    how: str, install: Install, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("fails", FAILS)
    assert "Traceback" not in llmb_here("list").stderr
    if how == "LLMB_DEBUG":
        monkeypatch.setenv("LLMB_DEBUG", "1")
    words = {
        "--debug": ["--debug", "list"],
        "list --debug": ["list", "--debug"],
        "LLMB_DEBUG": ["list"],
    }[how]
    done = llmb_here(*words)
    assert done.returncode == 0
    assert "Traceback" in done.stderr
    assert ", in inner" in done.stderr
    monkeypatch.delenv("LLMB_DEBUG", raising=False)
    assert "Traceback" not in llmb_here("list").stderr


COMMAND = """
import click
from llmb.api import hookimpl

def greet():
    click.echo("data")
    raise KeyError("deep")

@hookimpl
def llmb_commands():
    return [click.Command("greet", callback=greet)]
"""


def test_a_command_of_a_plugin_that_fails_is_named_with_its_line(
    install: Install, llmb_here: Command
) -> None:
    source = install("own", COMMAND)
    done = llmb_here("greet")
    assert (done.returncode, done.stdout) == (1, "data\n")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert source in line
    assert "llmb-run greet: KeyError: 'deep'" in line
    assert "fake_own.py:7" in line


CLAIMS = """
import click
from llmb.api import ClusterType, hookimpl

@hookimpl
def llmb_commands():
    return [click.Command("greet"), click.Command("{name}")]

@hookimpl
def llmb_clusters():
    return [ClusterType(name=name, create=lambda config: None) for name in ("moon", "{name}")]
"""


def test_of_two_strangers_with_one_name_neither_gets_it_and_all_else_works(
    install: Install,
) -> None:
    sources = [install(name, CLAIMS.replace("{name}", name)) for name in ("ape", "zebra")]
    plugins = app.load()
    commands, types = {command.name for command in plugins.commands()}, plugins.cluster_types()
    assert ("greet" in commands, "moon" in types) == (False, False)
    assert commands >= {"ape", "zebra", "list"}
    assert set(types) >= {"ape", "zebra", "local"}
    found = [(one.source, one.code, one.part) for one in plugins.problems]
    parts = ("command 'greet'", "cluster type 'moon'")
    assert sorted(found) == sorted(
        (source, "name-duplicate", part) for source in sources for part in parts
    )
    for one, other in zip(sources, sources[::-1], strict=True):
        assert all(other in problem.reason for problem in plugins.problems if problem.source == one)


FILE = """
import click
from llmb.api import hookimpl

@hookimpl
def llmb_commands():
    return [click.Command("{name}", callback=lambda: click.echo(__file__))]
"""


def test_files_of_a_folder_are_plugins(
    tmp_path: Path, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "hello.py").write_text(FILE.replace("{name}", "hello"))
    (first / "_helper.py").write_text("raise OSError")
    (first / "broken.py").write_text(FAILS + "# llmb.api.hookimpl\n")
    (first / "program.py").write_text("open('written', 'w').close()\n")
    (second / "bye.py").write_text(FILE.replace("{name}", "bye"))
    monkeypatch.setenv(
        "LLMB_PLUGINS", os.pathsep.join(map(str, (first, tmp_path / "missing", second)))
    )
    rows = {
        row["plugin"]: row
        for row in json.loads(llmb_here("plugins", "list", "--format", "json").stdout)
    }
    own = {name: row["status"] for name, row in rows.items() if not name.startswith("llmb-")}
    assert own == {
        "file:hello.py": "ok",
        "file:bye.py": "ok",
        "file:broken.py": "skipped",
        "file:program.py": "skipped",
        f"file:{second / 'hello.py'}": "skipped",
        "LLMB_PLUGINS": "skipped",
    }
    assert f"{first / 'broken.py'}:2" in rows["file:broken.py"]["reason"]
    assert "_program.py" in rows["file:program.py"]["reason"]
    assert not Path("written").exists()  # a file without hooks may be any program
    assert llmb_here("hello").stdout.strip() == str(first / "hello.py")
    assert llmb_here("bye").stdout.strip() == str(second / "bye.py")


TYPES = """
{first}
from llmb.api import hookimpl

@hookimpl
def llmb_clusters():
    from llmb.api import ClusterType
    return [ClusterType(name="moon", create="moon:create"{more})]
"""
SKIPPED = {
    "broken": {"first": "import no_such_module", "more": ""},
    "of a newer contract": {
        "first": "LLMB_CONTRACT = '99.0'\nfrom llmb.api import no_such_name",
        "more": "",
    },
    "of types that cannot be": {"first": "", "more": ", schema=dict"},
}


@pytest.mark.parametrize("why", SKIPPED)
def test_the_cluster_of_a_skipped_plugin_is_not_called_unknown(
    why: str,
    install: Install,
    llmb_here: Command,
    cluster: Callable[..., Path],
    wording: Callable[..., None],
) -> None:
    source = install("moon", TYPES.format(**SKIPPED[why]))
    folder = cluster("local", "cpu")
    file = folder / "cluster_config.yaml"
    file.write_text(file.read_text().replace("cluster_type: local", "cluster_type: moon"))
    done = llmb_here("jobs", "cancel", "--all", "--install", folder)
    assert (done.returncode, source in done.stderr) == (2, True)
    wording(
        "bad plugins",
        "\n".join(line for line in done.stderr.splitlines() if not line.startswith("warning:")),
    )
    with pytest.raises(KeyFaultError) as caught:
        check_cluster_type("moon")
    assert (caught.value.code, source in str(caught.value)) == ("cluster-type-skipped", True)


def test_a_type_that_two_plugins_claim_names_both(
    install: Install, llmb_here: Command, cluster: Callable[..., Path]
) -> None:
    for name in ("moon", "moon2"):
        install(name, TYPES.format(first="", more=""))
    folder = cluster("local", "cpu")
    file = folder / "cluster_config.yaml"
    file.write_text(file.read_text().replace("cluster_type: local", "cluster_type: moon"))
    done = llmb_here("jobs", "reconcile", "--install", folder)
    assert (done.returncode, "moon:entry" in done.stderr, "moon2:entry" in done.stderr) == (
        2,
        True,
        True,
    )


def test_a_skipped_plugin_may_offer_an_unknown_type(install: Install) -> None:
    """Its module does not have the name as a text, so that only its users know."""
    source = install("moon", "import no_such_module\n")
    error = no_type("mars", app.load().cluster_types())
    assert (error.code, source in (error.hint or "")) == ("cluster-type-unknown", True)
    assert source not in (no_type("slrum", app.load().cluster_types()).hint or "")
