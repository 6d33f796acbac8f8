# SPDX-License-Identifier: Apache-2.0
"""What stays when a plugin is removed, fails or offers something wrong: runs, other items, and its
name in errors.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import pytest

from llmb.cli import app
from llmb.contract.state import CANCELLED, RUNNING
from llmb.errors import UsageError, describe
from llmb_installer.cli import cli

Install = Callable[..., str]
Command = Callable[..., subprocess.CompletedProcess[str]]

HOOK = "from llmb.api import ClusterTraits, ClusterType, hookimpl\n"
TYPES = HOOK + "\n@hookimpl\ndef llmb_clusters():\n    return [{}]\n"
TYPE = 'ClusterType(name="{}", create="a:b"{})'
CREATES = (
    HOOK
    + '\ndef create(config):\n    raise OSError("no network")\n\n@hookimpl\ndef llmb_clusters():\n'
    + '    return [ClusterType(name="mine", create=create)]\n'
)
READING: tuple[tuple[str, ...], ...] = (
    ("results",),
    ("results", "--format", "json"),
    ("compare", "a1", "--scaling"),
    ("report",),
    ("archive", "-o", "FILE"),
    ("jobs", "list"),
    ("jobs", "show", "a1"),
    ("jobs", "logs", "a1"),
    ("explain", "a1"),
    ("list",),
)
REFUSED: tuple[tuple[str, ...], ...] = (
    ("single", "-w", "nemotron4_15b", "--scale", "16", "--dry-run"),
    ("submit-all", "--max-scale", "16", "--dry-run"),
    ("jobs", "cancel", "a1"),
    ("jobs", "reconcile"),
    ("config",),
)
PLUGINS = {  # of the cluster type mine, and what its error contains
    "removed": (None, ""),
    "fails at import": ("raise ValueError('no licence')\n", "ValueError: no licence"),
    "its hook fails": (TYPES.format("{}['x']"), "KeyError: 'x'"),
    "a wrong type": (
        TYPES.format(TYPE.format("mine", ', traits=ClusterTraits(runs_in="pod")')),
        "'pod'",
    ),
    "cannot be made": (CREATES, "OSError: no network"),
}


@pytest.fixture
def mine(make_install: Callable[..., Any], request: pytest.FixtureRequest) -> Any:
    """An install directory of the cluster type ``mine`` with a run that ended."""
    made = make_install()
    made.measured("a1", 2.75)
    file = made.folder / "cluster_config.yaml"
    text = file.read_text().replace("cluster_type: local", "cluster_type: mine")
    file.write_text(
        f"{text}\nmine: {{queue: short}}\n"
        if request.node.callspec.params["with_section"]
        else text
    )
    return made


@pytest.mark.parametrize("with_section", [True, False])
@pytest.mark.parametrize("plugin", [name for name in PLUGINS if name != "cannot be made"])
def test_results_outlive_the_plugin_of_their_cluster_type(
    plugin: str, with_section: bool, mine: Any, install: Install, llmb_here: Command, tmp_path: Path
) -> None:
    """What submits or cancels is refused, with the plugin and its error where it is installed."""
    code, cause = PLUGINS[plugin]
    source = install("moon", code) if code is not None else ""
    for words in READING if plugin == "removed" else READING[:2]:
        command = [str(tmp_path / "runs.tar.zst") if word == "FILE" else word for word in words]
        done = llmb_here(*command, "--install", mine.folder)
        assert done.returncode == 0, (command, done.stderr)
        assert "last known" not in done.stderr  # the run has ended
    for where in [mine.folder, tmp_path / "runs.tar.zst"] if plugin == "removed" else [mine.folder]:
        (result,) = json.loads(llmb_here("results", "--format", "json", "--install", where).stdout)[
            "results"
        ]
        assert (result["status"], result["time_mean_seconds"]) == ("Success", pytest.approx(2.75))
    for words in REFUSED:
        done = llmb_here(*words, "--install", mine.folder)
        (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert (done.returncode, done.stdout) == (2, ""), (words, done.stderr)
        assert "cluster_config.yaml:" in error
        assert cause in done.stderr
        assert source in done.stderr


@pytest.mark.parametrize("with_section", [False])
@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_state_that_cannot_be_asked_is_printed_once(
    plugin: str,
    with_section: bool,
    mine: Any,
    install: Install,
    llmb_here: Command,
    wording: Callable[..., None],
    tmp_path: Path,
) -> None:
    code, _ = PLUGINS[plugin]
    if code is not None:
        install("moon", code)
    mine.run("b2", mine.job("nemotron4_15b", "bf16", 16), "", RUNNING)
    done = llmb_here("results", "--format", "json", "--install", mine.folder)
    found = {one["run"]: one["status"] for one in json.loads(done.stdout)["results"]}
    assert found == {"a1": "Success", "b2": "Running"}
    wording("plugins gone", done.stderr)
    asking = ["results"], ["report"], ["jobs"], ["archive", "-o", str(tmp_path / "runs.tar.zst")]
    for words in asking:
        done = llmb_here(*words, "--install", mine.folder)
        assert done.stderr.count("last known states") == 1, (words, done.stderr)


@pytest.mark.parametrize("with_section", [True])
def test_a_log_is_printed_without_its_cluster(
    with_section: bool, mine: Any, llmb_here: Command
) -> None:
    mine.run("b2", mine.job("nemotron4_15b", "bf16", 16), "a line\n", RUNNING)
    mine.run("c3", mine.job("nemotron4_15b", "bf16", 16), "", CANCELLED)
    done = llmb_here("jobs", "logs", "b2", "--install", mine.folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a line\n", "")
    assert "CANCELLED" in llmb_here("jobs", "logs", "c3", "--install", mine.folder).stderr
    assert llmb_here("jobs", "logs", "-f", "b2", "--install", mine.folder).returncode == 2


@pytest.mark.parametrize("plugin", ["fails at import", "its hook fails", "a wrong type"])
def test_llmb_install_names_the_plugin_of_a_type_that_is_skipped(
    plugin: str,
    install: Install,
    tmp_path: Path,
    wording: Callable[..., None],
) -> None:
    install("moon", PLUGINS[plugin][0])
    words = [
        "--set",
        "cluster_type=mine",
        "--set",
        "gpu_type=cpu",
        "--install",
        str(tmp_path / "bench"),
        "--dry-run",
    ]
    done = click.testing.CliRunner().invoke(cli, words)
    assert isinstance(done.exception, UsageError)
    wording("plugins gone", describe(done.exception))


WRONG_TYPES = {
    "a name": TYPE.format("../x", ""),
    "traits": TYPE.format("nowhere", ', traits=ClusterTraits(runs_in="nonsense")'),
    "traits that fail": TYPE.format("nowhere", ", traits=lambda section: section.base"),
    "no type": "None",
    "no name": "ClusterType(name=None, create='a:b')",
}


@pytest.mark.parametrize("wrong", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_one_wrong_type_costs_that_type_alone(wrong: str, install: Install) -> None:
    mine, other = TYPE.format("mine", ""), TYPE.format("other", "")
    source = install("moon", TYPES.replace("{}", f"{mine}, {wrong}, {other}"))
    plugins = app.load()
    assert {"mine", "other"} <= set(plugins.cluster_types())
    (problem,) = plugins.problems
    assert problem.source == source
    assert problem.part.startswith(
        "a cluster type" if wrong[0] == "N" or "None" in wrong else "cluster type '"
    )


COMMANDS = """
import click
from types import SimpleNamespace
from llmb.api import hookimpl

@hookimpl
def llmb_commands():
    return [click.Command("shared"), SimpleNamespace(name="odd"), 5, click.Command("own_{}", callback=lambda: None)]
"""


def test_one_wrong_command_costs_that_command_alone(install: Install, llmb_here: Command) -> None:
    install("ape", COMMANDS.replace("{}", "ape"))
    assert llmb_here("own_ape").returncode == 0
    assert llmb_here("plugins").returncode == 0
    plugins = app.load()
    plugins.commands()
    assert sorted(problem.part for problem in plugins.problems) == ["a command", "command 'odd'"]


def test_a_command_of_a_skipped_plugin_is_missing_for_that_reason(
    install: Install, llmb_here: Command, wording: Callable[..., None]
) -> None:
    install("night", "raise ValueError('no moon')\n")
    for word in ("night", "resluts"):
        done = llmb_here(word)
        assert done.returncode == 2
        wording("plugins gone", done.stderr)


def test_a_command_that_two_plugins_claim_names_both(
    install: Install, llmb_here: Command, wording: Callable[..., None]
) -> None:
    for name in ("ape", "zebra"):
        install(name, COMMANDS.replace("{}", name))
    done = llmb_here("shared")
    assert done.returncode == 2
    wording("plugins gone", done.stderr)
