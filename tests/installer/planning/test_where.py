# SPDX-License-Identifier: Apache-2.0
"""Tests of what the plan says of where things are built and run; with pyxis nothing of NeMo is
installed here.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.core import yamlfile
from llmb.plugins.loader import load_plugins
from llmb_installer.answers.read import read_answers
from llmb_installer.applying import show
from llmb_installer.detect.site import make_site
from llmb_installer.planning.costs import Costs
from llmb_installer.planning.plan import InstallPlan, intend, plan_install
from llmb_installer.step import StepCost

PLUGINS = load_plugins(builtin_plugins())
HEAD = "gpu_type: h100\nnode_architecture: x86_64\nvenv_type: venv\n"


def planned(text: str, folder: Path) -> InstallPlan:
    document = yamlfile.parse(f"{HEAD}{text}", name="answers.yaml")
    answers = read_answers(document, install=folder, workloads=PLUGINS.workloads())
    return plan_install(intend(answers, make_site(answers, answers.gpu_type), PLUGINS)[0])


def test_with_pyxis_there_is_no_environment_at_all(
    tmp_path: Path, wording: Callable[..., None]
) -> None:
    plan = planned("cluster_type: slurm\nslurm: {container: pyxis, gpu: {gres: 8}}\n", tmp_path)
    assert {step.kind for step in plan.intent.steps} == {"asset", "image", "programs"}
    wording("llmb-install", "\n".join(show.describe_places(plan)))


@pytest.mark.parametrize(
    "text",
    [
        "cluster_type: slurm\nmethod: srun\nslurm: {container: none, gpu: {gres: 8}}\n",
        "cluster_type: local\n",
    ],
    ids=["srun", "local"],
)
def test_elsewhere(text: str, tmp_path: Path, wording: Callable[..., None]) -> None:
    wording("llmb-install", "\n".join(show.describe_places(planned(text, tmp_path))))


def test_workloads_that_need_nothing_have_no_environment(tmp_path: Path) -> None:
    plan = planned("cluster_type: local\n", tmp_path)
    bare = replace(plan, intent=replace(plan.intent, steps=()))
    assert "environment" in show.describe_places(plan)[0]
    assert "environment" not in show.describe_places(bare)[0]


def test_the_plan_as_data_has_it_too(tmp_path: Path) -> None:
    plan = planned("cluster_type: local\n", tmp_path)
    costs: Any = Costs(estimates={}, disks=(), faults=(), doubts=())
    assert show.plan_data(plan, costs)["where"] == show.describe_places(plan)
    assert show.describe_places(plan)[0] in show.format_plan(plan, costs)


@pytest.mark.parametrize("width", [40, 44, 60])
def test_a_plan_is_no_wider_than_the_terminal(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    plan = planned("cluster_type: local\n", tmp_path)
    size = StepCost(fetch=260_000_000, disk=1_100_000_000)
    estimates = {step.key: size for step in plan.intent.steps}
    costs: Any = Costs(estimates=estimates, disks=(), faults=(), doubts=())
    lines = [
        line for line in show.format_plan(plan, costs).splitlines() if str(tmp_path) not in line
    ]
    assert max(map(len, lines)) <= width
    assert ("1.1 GB" in "".join(lines)) == (width == 60)
