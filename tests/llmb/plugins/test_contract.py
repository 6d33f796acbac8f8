# SPDX-License-Identifier: Apache-2.0
"""Tests of the versioned contract: what a plugin may state, and that contract 1 keeps what plugins
rely on.
"""

import inspect
from collections.abc import Callable

import pytest

from llmb import api, hookspecs
from llmb.cli import app
from llmb.plugins import contract
from llmb.plugins.sources import OWN_DISTRIBUTIONS

Install = Callable[..., str]
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
    ],
)
def test_which_contracts_are_accepted(
    stated: object, own: str, code: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "CONTRACT", own)
    found = contract.contract_problem(stated, "acme")
    assert (found[0] if found is not None else None) == code
    if code == "contract-newer":
        assert found is not None
        assert "upgrade llmb" in found[1]
    if code == "contract-older":
        assert found is not None
        assert "upgrade acme" in found[1]


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
