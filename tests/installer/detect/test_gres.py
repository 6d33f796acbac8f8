# SPDX-License-Identifier: Apache-2.0
"""Tests of the GPUs that jobs ask Slurm for, where the answers leave them open."""

from pathlib import Path
from typing import Any

import pytest

from llmb.clusters.slurm.partitions import read
from llmb.text import yamlfile
from llmb.workload.spec import Workload
from llmb_installer.answers import Answers, read_answers
from llmb_installer.detect import scheduler
from llmb_installer.detect.gres import filled
from llmb_installer.detect.scheduler import SlurmFound
from llmb_installer.detect.site import settle, site_of
from llmb_installer.planning.config import own_part, plan_config
from llmb_installer.planning.flow import recalled

SINFO = (
    "batch*|up|infinite|1-infinite|4|idle|gpu:h100:8|n[1-4]|none\n"
    "batch*|up|infinite|1-infinite|4|idle|gpu:h100:4|m[1-4]|none\n"
    "all|up|infinite|1-infinite|8|idle|gpu:gb200:4|g[1-4]|none\n"
    "all|up|infinite|1-infinite|8|idle|gpu:h100:8|n[1-4]|none\n"
    "bare|up|infinite|1-infinite|8|idle|(null)|b[1-4]|none\n"
)
FOUND = SlurmFound(partitions=read(SINFO))
TEXT = "cluster_type: slurm\ngpu_type: h100\nnode_architecture: x86_64\n"


def asked(slurm: str, workloads: dict[str, Workload]) -> Answers:
    document = yamlfile.parse(f"{TEXT}slurm: {slurm}\n", name="answers.yaml")
    return read_answers(document, install=Path("/i"), known=workloads)


def gres_of(answers: Answers) -> Any:
    assert answers.slurm is not None
    return answers.slurm.option("gres")


@pytest.mark.parametrize(
    ("slurm", "gres"),
    [
        ("{}", 4),
        ("{partition: batch}", 4),
        ("{gpu: {partition: all}}", "h100:8"),
        ("{gpu: {partition: bare}}", None),
        ("{gpu: {partition: batch, gres: 2}}", 2),
        ("{gpu: {partition: batch, gres: null}}", None),
        ("{gpu: {partition: batch, gpus_per_node: 8}}", None),
        ("{partition: batch, args: {gpus-per-node: 8}}", None),
    ],
)
def test_it_is_filled_in_as_slurm_shows_it(
    slurm: str, gres: Any, workloads: dict[str, Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "find_slurm", lambda **_: FOUND)
    answers, notes = settle(asked(slurm, workloads))
    assert gres_of(answers) == gres
    assert bool(notes) == (answers.slurm != asked(slurm, workloads).slurm)


def test_jobs_for_cpus_ask_for_none(workloads: dict[str, Workload]) -> None:
    text = TEXT.replace("h100", "cpu") + "slurm: {container: none}\n"
    answers = read_answers(yamlfile.parse(text, name="a"), install=Path("/i"), known=workloads)
    assert filled(answers, FOUND) == (answers, [])


def test_where_slurm_does_not_answer_it_is_asked_for(workloads: dict[str, Workload]) -> None:
    answers = asked("{partition: batch}", workloads)
    same, (note,) = filled(answers, SlurmFound(fault="Slurm does not answer"))
    assert same == answers
    assert "slurm.gpu.gres: 8 in the answers, or null" in note


def test_what_was_found_out_before_stays_when_slurm_is_silent(workloads: dict[str, Workload]) -> None:
    before = {"slurm": {"gpu": {"partition": "batch", "gres": 4}}}
    assert gres_of(recalled(asked("{partition: batch}", workloads), before)) == 4
    assert gres_of(recalled(asked("{gpu: {gres: 8}}", workloads), before)) == 8


def test_a_file_written_by_hand_gets_it_and_keeps_the_rest(
    workloads: dict[str, Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "find_slurm", lambda **_: FOUND)
    answers, _ = settle(asked("{account: team, gpu: {partition: batch}}", workloads))
    now = {"cluster_type": "slurm", "slurm": {"account": "team", "gpu": {"partition": "batch"}, "qos": "high"}}
    change = plan_config({}, now, own_part(answers, site_of(answers, "h100"), [], []))
    assert change.data["slurm"]["gpu"] == {"partition": "batch", "gres": 4}
    assert change.data["slurm"]["qos"] == "high"
