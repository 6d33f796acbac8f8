# SPDX-License-Identifier: Apache-2.0
"""Tests of the versioned contract: what a plugin may state, and that contract 1 keeps what plugins
rely on.
"""

import inspect
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb import api, hookspecs
from llmb.cli import app
from llmb.plugins import contract
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
    ],
)
def test_which_contracts_are_accepted(
    stated: object, own: str, code: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "CONTRACT", own)
    monkeypatch.setattr(contract, "OLDEST_CONTRACT", f"{own.partition('.')[0]}.0")
    found = contract.contract_problem(stated, "acme")
    assert (found[0] if found is not None else None) == code
    if code == "contract-newer":
        assert found is not None
        assert "upgrade llmb" in found[1]
    if code == "contract-older":
        assert found is not None
        assert "upgrade acme" in found[1]


def test_a_plugin_of_the_major_before_works_and_is_named(
    install: Install, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = install("old", OPTIONAL)
    both = install("both", "LLMB_CONTRACT = '>=1.0,<3.0'\n" + OPTIONAL)
    monkeypatch.setattr(contract, "CONTRACT", "2.0")
    monkeypatch.setattr(contract, "OLDEST_CONTRACT", "1.0")
    listed = json.loads(llmb_here("plugins", "list", "--format", "json").stdout)
    rows = {row["plugin"]: row for row in listed}
    assert (rows[old]["status"], rows[both]["status"]) == ("ok", "ok")
    assert "older contract" in rows[old]["reason"]
    assert rows[both]["reason"] == ""
    assert f"plugin {old} is made for an older contract" in llmb_here("plugins", "check").stderr


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
