# SPDX-License-Identifier: Apache-2.0
"""Every command names the owner of a cluster_config.yaml of exemplar-performance, and the command
that imports it.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import click.testing
import pytest

from llmb.errors import UsageError
from llmb.plan.config_layers import load_config
from llmb.plugins.foreign import CODE, find_foreign, find_own_install
from llmb_installer import record
from llmb_installer.cli import cli
from llmb_installer.cluster_types import all_plugins, all_types
from llmb_installer.commands import import_
from llmb_installer.detect.detected import Damaged, find_installed
from llmb_testing import exemplar_folder as exemplar

Command = Callable[..., "subprocess.CompletedProcess[str]"]
RELEASES = ("25.12", "26.02")  # the last with `launcher:`, the first without


@pytest.fixture(params=RELEASES)
def theirs(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder of each version."""
    exemplar.write_config(tmp_path / "theirs", request.param)
    return tmp_path / "theirs"


def test_llmb_run_refuses_it(
    theirs: Path, llmb_here: Command, wording: Callable[..., None], request: pytest.FixtureRequest
) -> None:
    printed = set()
    for command in (
        ("results",),
        ("jobs",),
        ("config",),
        ("compare",),
        ("list",),
        ("submit-all", "--max-scale", "64"),
    ):
        done = llmb_here(*command, "--install", theirs)
        assert (done.returncode, done.stdout) == (2, ""), command
        # submit-all adds that nothing was submitted
        printed.add("\n".join(done.stderr.splitlines()[:2]))
    (message,) = printed
    if RELEASES[0] in request.node.name:
        wording("results", message)


@pytest.mark.parametrize(
    "words", [("status",), ("verify",), ("add", "nemotron4"), ("remove", "nemotron4"), ()]
)
def test_llmb_install_refuses_it(words: tuple[str, ...], theirs: Path) -> None:
    for options in ((), ("--yes",)):
        if options and words in (("status",),):
            continue
        done = click.testing.CliRunner().invoke(cli, [*words, "--install", str(theirs), *options])
        assert isinstance(done.exception, UsageError), (words, done.output)
        assert (done.exception.code, done.exception.value) == (CODE, str(theirs))
        assert done.exception.hint is not None
        assert done.exception.hint.endswith(f"llmb-install import {theirs}")


def test_every_way_to_find_it(theirs: Path) -> None:
    for call in (
        lambda: find_own_install(all_plugins, theirs, {}, Path("/")),
        lambda: find_own_install(all_plugins, None, {"LLMB_INSTALL": str(theirs)}, Path("/")),
        lambda: find_own_install(all_plugins, None, {}, theirs),
        lambda: record.read_own_config(theirs),
    ):
        with pytest.raises(UsageError) as raised:
            call()
        assert raised.value.code == CODE
    found = find_installed(theirs, {}, Path("/"))
    assert isinstance(found, Damaged)
    assert (found.path, found.error.code) == (theirs, CODE)


def test_once_imported_the_hint_names_the_new_folder(
    theirs: Path, do_import: Callable[..., object]
) -> None:
    do_import(theirs)
    with pytest.raises(UsageError) as raised:
        find_own_install(all_plugins, theirs, {}, Path("/"))
    assert str(raised.value.hint).endswith(f"--install {theirs}-llmb")
    load_config(
        find_own_install(all_plugins, theirs.with_name("theirs-llmb"), {}, Path("/")),
        {},
        cluster_types=all_types,
    )


def test_files_that_are_llmbs(tmp_path: Path, cluster: Callable[..., Path]) -> None:
    """Also one with a mistake: its own error is better."""
    assert find_foreign(cluster("slurm"), all_plugins) is None
    broken = tmp_path / "cluster_config.yaml"
    for text in (
        "gpu_type: h100\n",
        "cluster_type: slurm\nllmb_repo: /x\n",
        "# launcher:\n",
        "workloads:\n  launcher: x\n",
    ):
        broken.write_text(text)
        assert find_foreign(tmp_path, all_plugins) is None


def test_the_command(source: Path, wording: Callable[..., None]) -> None:
    """What it prints, first, again, and as JSON."""
    runner = click.testing.CliRunner()
    for options in (("--dry-run",), ("--yes",), ("--yes",)):
        done = runner.invoke(cli, ["import", str(source), *options], catch_exceptions=False)
        assert done.exit_code == 0
        wording("llmb-install-import", done.output)
    refused = runner.invoke(cli, ["import", str(source), "--into", str(source.with_name("new"))])
    assert isinstance(refused.exception, UsageError)
    assert refused.exception.code == "no-terminal"


@pytest.mark.parametrize(("answer", "done"), [("\n", True), ("n\n", False)])
def test_a_terminal_offers_the_import(answer: str, done: bool, theirs: Path) -> None:
    """The wizard, started in such a folder, asks once; Enter agrees."""
    with pytest.raises(UsageError) as raised:
        find_own_install(all_plugins, theirs, {}, Path("/"))
    runner = click.testing.CliRunner()
    command = click.Command("offer", callback=lambda: import_.offer(raised.value, dry_run=False))
    result = runner.invoke(command, input=answer)
    assert (theirs.with_name("theirs-llmb") / "cluster_config.yaml").is_file() == done
    assert (result.exception is None) == done
    if not done:
        assert result.exception is raised.value
