# SPDX-License-Identifier: Apache-2.0
"""Tests of images as steps of an installation, from a real registry: built for Slurm, only looked up for Run:ai."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmb.images import file_name
from llmb.needs import Image
from llmb_installer.testing.images import Layer, SampleImage, file, make
from llmb_installer.testing.registry import RealRegistry, missing_packages

pytestmark = pytest.mark.slow

SLURM = {
    "cluster_type": "slurm", "gpu_type": "h100", "node_architecture": "x86_64", "slurm": {"container": "pyxis"},
}  # fmt: skip
RUNAI = {
    "cluster_type": "runai", "gpu_type": "h100", "node_architecture": "x86_64",
    "runai": {"base_url": "https://host/api/v1", "project": "p", "pvc": {"name": "w", "path": "/w", "claim": "c"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    """A real registry on loopback with one image for x86_64."""
    missing = [*missing_packages(), *([] if shutil.which("mksquashfs") else ["squashfs-tools"])]
    if missing:
        pytest.skip(f"no real registry here: apt-get install {' '.join(missing)}")
    with RealRegistry(tmp_path_factory.mktemp("registry")) as started:
        started.push("team/tool", "1", make(SampleImage(layers=(Layer(entries=(file("hello", b"there\n"),)),))))
        yield started


def test_an_image_is_built(site: Any, registry: RealRegistry) -> None:
    """Once for two workloads; verify finds it cut; the last user's removal takes it away."""
    reference = registry.reference("team/tool", "1")
    site.settings = SLURM
    site.workload("pretrain_a", Image(reference=reference))
    site.workload("pretrain_b", Image(reference=reference))
    plan = json.loads(site.run("--config", site.answers(), "--dry-run", "--format", "json").stdout)
    (step,) = [step for step in plan["steps"] if step["step"] == f"image {reference}"]
    assert step["workloads"] == ["pretrain_a", "pretrain_b"]
    assert 0 < step["fetch_bytes"] < step["disk_bytes"]
    done = site.run()
    assert done.returncode == 0, done.stderr
    target = site.install / "images" / file_name(reference)
    assert target.read_bytes().startswith(b"hsqs")
    assert target.with_name(f"{target.name}.json").is_file()
    assert site.leftovers() == []
    assert site.run().stdout.startswith("Nothing to do: ")

    with target.open("r+b") as stream:
        stream.truncate(100)
    checked = site.run("verify", "--install", site.install)
    assert checked.returncode == 1
    assert f"error: image {reference}: {target}: it is cut: " in checked.stderr
    mended = site.run("verify", "--repair", "--yes", "--install", site.install)
    assert mended.returncode == 0, mended.stderr
    assert site.run("verify", "--deep", "--install", site.install).returncode == 0

    assert site.run("remove", "pretrain_a", "--yes", "--install", site.install).returncode == 0
    assert target.is_file()
    assert site.run("remove", "pretrain_b", "--yes", "--install", site.install).returncode == 0
    assert not target.exists()


def test_an_image_folder_of_its_own(site: Any, registry: RealRegistry, tmp_path: Path) -> None:
    reference = registry.reference("team/tool", "1")
    site.settings = {**SLURM, "image_folder": str(tmp_path / "elsewhere")}
    site.workload("pretrain_a", Image(reference=reference))
    assert site.run().returncode == 0
    assert (tmp_path / "elsewhere" / file_name(reference)).is_file()


def test_every_image_is_looked_up_before_anything_starts(site: Any, registry: RealRegistry) -> None:
    site.settings = SLURM
    site.workload("pretrain_a", Image(reference=registry.reference("team/tool", "2")))
    site.workload("pretrain_b", Image(reference=registry.reference("team/none", "1")))
    done = site.run()
    assert done.returncode == 1
    assert "team/tool" in done.stderr
    assert "team/none" in done.stderr
    assert not site.install.exists()


def test_on_runai_nothing_is_built(site: Any, registry: RealRegistry) -> None:
    reference = registry.reference("team/tool", "1")
    site.settings = RUNAI
    site.workload("pretrain_a", Image(reference=reference))
    done = site.run()
    assert done.returncode == 0, done.stderr
    assert f"image {reference}: by reference, sha256:" in done.stdout
    assert not (site.install / "images").exists()
