# SPDX-License-Identifier: Apache-2.0
"""Tests of what the plan says of where things are built and run; with pyxis nothing of NeMo is installed here."""

from pathlib import Path
from typing import Any

import pytest

from llmb.builtin import builtin_plugins
from llmb.plugins.loader import load_plugins
from llmb.text import yamlfile
from llmb_installer.answers import read_answers
from llmb_installer.applying import show
from llmb_installer.detect.site import site_of
from llmb_installer.planning.plan import Plan, intend, look

PLUGINS = load_plugins(builtin_plugins())
HEAD = "gpu_type: h100\nnode_architecture: x86_64\nvenv_type: venv\n"


def planned(text: str, folder: Path) -> Plan:
    document = yamlfile.parse(f"{HEAD}{text}", name="answers.yaml")
    answers = read_answers(document, install=folder, known=PLUGINS.workloads())
    return look(intend(answers, site_of(answers, answers.gpu_type), PLUGINS)[0])


def test_with_pyxis_there_is_no_environment_at_all(tmp_path: Path) -> None:
    plan = planned("cluster_type: slurm\nslurm: {container: pyxis, gpu: {gres: 8}}\n", tmp_path)
    assert {step.kind for step in plan.intent.steps} == {"image", "programs"}
    assert show.where_sentences(plan) == [
        "Fetched and built: on this machine.",
        "Jobs run in their image on compute nodes: NeMo is in it, and nothing of NeMo is installed on this machine.",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "cluster_type: slurm\nmethod: srun\nslurm: {container: none, gpu: {gres: 8}}\n",
            [
                "Fetched and built: on a compute node, by srun.",
                "Jobs run on compute nodes from the environments nemo and torch: nodes must see them.",
            ],
        ),
        ("cluster_type: local\n", ["Fetched, built and run on this machine, from the environment torch."]),
    ],
)
def test_elsewhere(text: str, said: list[str], tmp_path: Path) -> None:
    assert show.where_sentences(planned(text, tmp_path)) == said


def test_programs_read_it_too(tmp_path: Path) -> None:
    from llmb_installer.applying import show
    from llmb_installer.planning.costs import Costs

    plan = planned("cluster_type: local\n", tmp_path)
    costs: Any = Costs(estimates={}, disks=(), faults=(), doubts=())
    assert show.plan_data(plan, costs)["where"] == show.where_sentences(plan)
    assert show.where_sentences(plan)[0] in show.plan_text(plan, costs)
