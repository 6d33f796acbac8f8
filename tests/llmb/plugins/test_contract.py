# SPDX-License-Identifier: Apache-2.0
"""Tests of the versioned contract: what a plugin may state, and that contract 1 keeps what plugins
rely on.
"""

import inspect
import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import pytest

from llmb import api, hookspecs
from llmb.builtin.plugins import builtin_plugins
from llmb.cli import app, commands
from llmb.plugins.adapters import Adapted, Adapter, Contract
from llmb.plugins.contract import contract_problem
from llmb.plugins.loaded import Plugins
from llmb.plugins.loader import load_plugins
from llmb.plugins.sources import OWN_DISTRIBUTIONS

Install = Callable[..., str]
Command = Callable[..., subprocess.CompletedProcess[str]]
HOOK = "from llmb.api import hookimpl\n"
OPTIONAL = HOOK + "@hookimpl(optionalhook=True)\ndef llmb_of_tomorrow(job, star): ...\n"
OPTIONAL += "@hookimpl\ndef llmb_clusters(): return []\n"

# What contract 1.0 has. Removing any of it needs contract 2.0; what is added is not listed here.
HOOKS = {
    "llmb_workload": [],
    "llmb_setup": ["workload", "site"],
    "llmb_launch": ["workload", "job", "site"],
    "llmb_parse": ["workload", "run"],
    "llmb_flops": ["workload", "shape"],
    "llmb_clusters": [],
    "llmb_commands": [],
    "llmb_settings": [],
}
NAMES = """
BatchRule Checkpoint Cluster ClusterType Flops GpuType HubAsset Image Job JobState Launch MambaShape MetricSpec MlaShape
ModelShape MoeShape Needs NemoRecipe Pace Parameter ParseSpec Program Repo Row RunRecord Samples Scales Server Site Size
StagedFile Stamp Step Task Training UnclearError Venv Workload Wrapper hookimpl read_workload
CheckpointEvent Environment Node
"""


def test_contract_1_keeps_its_hooks_their_arguments_and_the_names_of_the_api() -> None:
    assert hookspecs.CONTRACT.startswith("1.")
    for hook, arguments in HOOKS.items():
        assert set(inspect.signature(getattr(hookspecs, hook)).parameters) >= set(arguments)
    assert set(api.__all__) >= set(NAMES.split())
    assert api.CONTRACT == hookspecs.CONTRACT


@pytest.mark.parametrize(
    ("stated", "own", "code"),
    [
        ("1.0", "1.0", None),
        ("1.0", "1.10", None),
        ("1.9", "1.10", None),
        ("1.10", "1.9", "contract-newer"),
        ("2.0", "1.9", "contract-newer"),
        ("1.9", "2.0", "contract-older"),
        ("1", "1.0", "contract-invalid"),
        ("1.0.0", "1.0", "contract-invalid"),
        (1.0, "1.0", "contract-invalid"),
        (None, "1.0", "contract-invalid"),
        (">=1.1,<3.0", "1.0", "contract-newer"),
        (">=1.1,<3.0", "1.1", None),
        (">=1.1, <3.0", "2.9", None),
        (">=1.1,<3.0", "3.0", "contract-older"),
        (">=1.0,<1.5", "1.5", "contract-older"),
        (">=1.1", "1.1", "contract-invalid"),
        (">=2.0,<1.0", "1.0", "contract-invalid"),
        (">=1.0,<1.0", "1.0", "contract-invalid"),
    ],
)
def test_which_contracts_are_accepted(stated: object, own: str, code: str | None) -> None:
    found = contract_problem(stated, "acme", Contract(version=own))
    assert (found[0] if found is not None else None) == code
    if code == "contract-newer":
        assert found is not None
        assert "upgrade llmb" in found[1]
    if code == "contract-older":
        assert found is not None
        assert "upgrade acme" in found[1]


# A plugin of an invented contract, whose MAJOR 1 called a hook otherwise.
OLD = """
import click
from llmb.api import hookimpl

LLMB_CONTRACT = "{stated}"

@hookimpl
def llmb_further_commands():
    return ["greet", "part"]
"""
NEW = OLD.replace("llmb_further_commands", "llmb_commands").replace(
    'return ["greet", "part"]', 'return [click.Command("wave")]'
)


def with_commands(plugin: object) -> object:
    """As MAJOR 2 has it: another name of the hook, and commands in the place of their names."""
    names: Callable[[], list[str]] = plugin.llmb_further_commands  # type: ignore[attr-defined]
    hooks = {
        "llmb_commands": lambda: [
            click.Command(name, callback=partial(click.echo, f"{name} of old")) for name in names()
        ],
        "llmb_further_commands": None,
    }
    return Adapted(plugin, hooks)


def unchanged(plugin: object) -> object:
    return plugin


FIRST, SECOND = (
    Adapter(since="2027-03-01", adapt=with_commands),
    Adapter(since="2027-06-01", adapt=unchanged),
)
# Contract 2.0 adapts plugins of 1. The year of 2 is not over when 3.0 comes, and over with 4.0.
PERIOD = [
    Contract(version="2.0", adapters={1: FIRST}),
    Contract(version="3.0", adapters={1: FIRST, 2: SECOND}),
]
AFTER = Contract(version="4.0", adapters={3: SECOND})


def loaded_for(contract: Contract) -> Plugins:
    return load_plugins([("commands", commands), *builtin_plugins()], contract=contract)


@pytest.mark.parametrize("own", PERIOD, ids=lambda own: own.version)
def test_a_plugin_of_an_older_major_works_in_the_period_and_is_named(
    own: Contract, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    old = install("old", OLD.format(stated="1.0"))
    both = install("both", NEW.format(stated=">=1.0,<4.0"))
    plugins = loaded_for(own)
    assert [problem for problem in plugins.problems if problem.source in (old, both)] == []
    assert app.run(["greet"], plugins) == 0
    assert capsys.readouterr().out == "greet of old\n"
    assert plugins.names("llmb_commands")[both] == ["wave"]

    assert app.run(["plugins", "list", "--format", "json"], plugins) == 0
    rows = {row["plugin"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows[old]["status"], rows[old]["contract"]) == ("ok", "1.0")
    assert f"contract 1.0, which llmb adapts to {own.version}" in rows[old]["reason"]
    assert FIRST.since in rows[old]["reason"]
    assert (rows[both]["status"], rows[both]["reason"]) == ("ok", "")

    app.run(["plugins", "check", "-w", "old"], plugins)
    assert f"plugin {old} is made for contract 1.0" in capsys.readouterr().err


def test_a_plugin_of_an_older_major_is_refused_after_the_period(
    install: Install, capsys: pytest.CaptureFixture[str], wording: Callable[..., None]
) -> None:
    sources = [install("old", OLD.format(stated="1.0")), install("silent", SILENT)]
    plugins = loaded_for(AFTER)
    problems = {one.source: one for one in plugins.problems if one.source in sources}
    assert {one.code for one in problems.values()} == {"contract-older"}
    assert "fake_old.py:5: " in problems[sources[0]].reason
    assert "fake_silent.py: " in problems[sources[1]].reason
    assert app.run(["greet"], plugins) == 2
    assert app.run(["plugins", "check", "-w", "old"], plugins) == 1
    printed = capsys.readouterr()
    wording("plugins check", printed.err.splitlines()[-1])


SILENT = OLD.replace('LLMB_CONTRACT = "{stated}"\n', "")


def test_adapters_have_no_gap_and_none_is_of_this_major() -> None:
    """A plugin of an older MAJOR goes through all of them, one after the other."""
    own = Contract()
    assert sorted(own.adapters) == list(range(own.oldest_major, own.major))
    assert Contract(version="4.0", adapters={1: FIRST, 3: SECOND}).oldest_major == 3


PARTS = (
    HOOK
    + """
import click
from llmb.api import ClusterType

@hookimpl
def llmb_clusters():
    return [ClusterType(name="moon", create="moon:create")]

@hookimpl
def llmb_commands():
    return [click.Command("phase")]
"""
)


def test_the_list_shows_all_that_a_plugin_adds(install: Install, llmb_here: Command) -> None:
    source = install("moon", PARTS)
    broken = install("gone", "import no_such_module")
    listed = json.loads(llmb_here("plugins", "list", "--format", "json").stdout)
    rows = {row["plugin"]: row for row in listed}
    moon = rows[source]
    assert (moon["version"], moon["kind"]) == ("1.0", "cluster type, command")
    assert (moon["cluster_type"], moon["command"], moon["workload"]) == ("moon", "phase", "")
    assert Path(moon["file"]).name == "fake_moon.py"
    assert Path(rows[broken]["file"]).name == "fake_gone.py"
    assert (rows[broken]["version"], rows[broken]["kind"]) == ("1.0", "")


def test_a_hook_that_a_plugin_marks_optional_is_ignored_by_an_older_llmb(install: Install) -> None:
    install("future", OPTIONAL)
    plugins = app.load()
    plugins.cluster_types()
    assert plugins.problems == []
    assert "future:entry" in plugins.sources


def test_the_plugins_of_llmb_are_those_of_its_own_distributions() -> None:
    """Their names keep their owner; a new member of the workspace with a plugin belongs to them."""
    assert {source.partition(":")[0] for source in app.load().sources} == OWN_DISTRIBUTIONS - {
        "llmb"
    }
