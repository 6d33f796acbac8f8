# SPDX-License-Identifier: Apache-2.0
"""Tests of comparing answers with the cluster they are for: other types, Run:ai, and NeMo's image
without GPUs.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.contract.spec import Workload
from llmb.core import yamlfile
from llmb.plan.read_config import read_config
from llmb_installer import fits
from llmb_installer.answers.read import read_answers
from llmb_installer.answers.schema import Answers
from llmb_installer.applying import show
from llmb_installer.cluster_types import all_types
from llmb_installer.detect import scheduler
from llmb_installer.images.image_step import ImageStep
from llmb_installer.record import InstallRecord
from llmb_runai import findings
from llmb_testing.runai import ControlPlane, serve


def asked(text: str, workloads: dict[str, Workload]) -> Answers:
    return read_answers(yamlfile.parse(text, name="a.yaml"), workloads=workloads)


def test_slurm_is_not_asked_for_another_cluster_type(
    monkeypatch: pytest.MonkeyPatch, workloads: dict[str, Workload]
) -> None:
    monkeypatch.setattr(scheduler, "find_slurm", None)
    assert fits.check(asked("cluster_type: local\ninstall: /x\n", workloads)) == []


def test_a_volume_that_is_not_mounted(
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    workloads: dict[str, Workload],
    wording: Callable[..., None],
) -> None:
    """It does not stop an installation: it may be mounted later."""
    monkeypatch.delenv("APP_SECRET", raising=False)
    monkeypatch.delenv("CLIENT_SECRET", raising=False)
    runai = (
        f"runai: {{base_url: https://h/api/v1, project: p, pvc: {{name: w, path: {tmp_path}/pvc,"
        " claim: c}}\n"
    )
    text = f"cluster_type: runai\ngpu_type: h100\n{runai}"
    notes = fits.check(asked(f"{text}install: {tmp_path}/x\n", workloads))
    assert len(notes) == 3
    wording("llmb-install", "\n".join(notes))
    (tmp_path / "pvc").mkdir()
    assert fits.check(asked(f"{text}install: {tmp_path}/pvc/x\n", workloads)) == notes[:1]


@pytest.mark.parametrize(
    ("project", "secret", "named"),
    [
        ("benchmarks", "s3cret", None),
        ("mine", "s3cret", "runai.project"),
        ("benchmarks", "bad", "APP_SECRET"),
    ],
)
def test_an_answer_of_runai(
    tmp_path: Path, workloads: dict[str, Workload], project: str, secret: str, named: str | None
) -> None:
    with serve(ControlPlane(tmp_path / "pods", has_pods=False)) as plane:
        section = (
            f"base_url: {plane.url}, project: {project}, pvc: {{name: w, path: {tmp_path},"
            " claim: c}"
        )
        text = f"cluster_type: runai\ngpu_type: h100\ninstall: {tmp_path}/x\nrunai: {{{section}}}\n"
        secrets = {"APP_ID": "me", "APP_SECRET": secret}
        found = [*findings.notes(asked(text, workloads).section, secrets)]
    assert len(found) == (named is not None)
    assert all(f"check {named}" in note for note in found), "the fix names the answer to check"


RUNAI = "runai: {base_url: https://h/api/v1, project: p, pvc: {name: w, path: /w, claim: c}}"


@pytest.mark.parametrize(
    ("kind", "gpu_type", "own", "lacks"),
    [
        ("runai", "cpu", "", True),
        ("runai", "cpu", "venvs: {torch: /w/torch}", False),
        ("runai", "cpu", "venv_path: /w/torch", False),
        ("runai", "h100", "", False),
        ("slurm", "cpu", "", False),
    ],
)
def test_runai_without_gpus_needs_packages_that_nemos_image_lacks(
    kind: str, gpu_type: str, own: str, lacks: bool
) -> None:
    section = RUNAI if kind == "runai" else ""
    text = (
        f"cluster_type: {kind}\ngpu_type: {gpu_type}\n{section}\nworkloads: {{config: {{pretrain_a:"
        f" {{{own}}}}}}}\n"
    )
    config = read_config(yamlfile.parse(text, name="c.yaml"), cluster_types=all_types)
    nemo, other = (
        ImageStep(reference=reference, architecture="x86_64", target=None, workloads=(key,))
        for reference, key in (
            ("nvcr.io/nvidia/nemo:25.04.01", "pretrain_a"),
            ("h/torch:1", "pretrain_b"),
        )
    )
    keys = fits.find_workloads_without_torch(config, [nemo, other])
    assert keys == (("pretrain_a",) if lacks else ())
    summary = show.summarize(Path("/w/llmb"), InstallRecord(), ("pretrain_a", "pretrain_b"), keys)
    assert ("torch>=2.4" in summary) == lacks
    command = summary.partition("llmb-run submit")[2]
    assert ("--image IMAGE" in command) == lacks


def test_the_note_on_missing_packages(wording: Callable[..., None]) -> None:
    wording("llmb-install", fits.explain_torch(["pretrain_a"]))
