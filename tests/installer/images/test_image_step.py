# SPDX-License-Identifier: Apache-2.0
"""Tests of images as steps of an installation, from a real registry: built for Slurm, only checked
for Run:ai.
"""

import json
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.needs import Image
from llmb.plan.images import file_name
from llmb_installer.images.image_step import FOR_PODS
from llmb_testing.real_registry import RealRegistry, missing_packages
from llmb_testing.sample_images import Layer, SampleImage, file, make
from sqshpull.layers import cache_folder

pytestmark = pytest.mark.slow

SLURM = {
    "cluster_type": "slurm",
    "gpu_type": "h100",
    "node_architecture": "x86_64",
    "slurm": {"container": "pyxis"},
}
RUNAI = {
    "cluster_type": "runai",
    "gpu_type": "h100",
    "node_architecture": "x86_64",
    "runai": {
        "base_url": "https://host/api/v1",
        "project": "p",
        "pvc": {"name": "w", "path": "/w", "claim": "c"},
    },
}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    """A real registry on loopback with one image for x86_64."""
    missing = [*missing_packages(), *([] if shutil.which("mksquashfs") else ["squashfs-tools"])]
    if missing:
        pytest.skip(f"no real registry here: apt-get install {' '.join(missing)}")
    with RealRegistry(tmp_path_factory.mktemp("registry")) as started:
        started.push(
            "team/tool",
            "1",
            make(SampleImage(layers=(Layer(entries=(file("hello", b"there\n"),)),))),
        )
        yield started


def test_an_image_is_built(site: Any, registry: RealRegistry) -> None:
    """Once for two workloads; verify detects a truncated file; removing the last workload removes
    the image.
    """
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
    assert site.run().stdout.startswith("Nothing to do:")

    with target.open("r+b") as stream:
        stream.truncate(100)
    checked = site.run("verify", "--install", site.install)
    assert checked.returncode == 1
    assert f"error: image {reference}:" in checked.stderr
    assert str(target) in checked.stderr
    repaired = site.run("verify", "--repair", "--yes", "--install", site.install)
    assert repaired.returncode == 0, repaired.stderr
    assert site.run("verify", "--deep", "--install", site.install).returncode == 0

    assert site.run("remove", "pretrain_a", "--yes", "--install", site.install).returncode == 0
    assert target.is_file()
    assert site.run("remove", "pretrain_b", "--yes", "--install", site.install).returncode == 0
    assert not target.exists()


def test_a_truncated_image_is_not_skipped(site: Any, registry: RealRegistry) -> None:
    """Although a file of that name exists: the same command builds it again, and status does not
    show it as present.
    """
    reference = registry.reference("team/tool", "1")
    site.settings = SLURM
    site.workload("pretrain_a", Image(reference=reference))
    assert site.run().returncode == 0
    target = site.install / "images" / file_name(reference)
    length = target.stat().st_size
    with target.open("r+b") as stream:
        stream.truncate(length - 1)
    status = json.loads(site.run("status", "--install", site.install, "--format", "json").stdout)
    assert {row["step"]: row["there"] for row in status["steps"]}[f"image {reference}"] is False
    done = site.run()
    assert done.returncode == 0, done.stderr
    assert target.stat().st_size == length
    assert site.run("verify", "--deep", "--install", site.install).returncode == 0


def test_layers_of_an_earlier_attempt_are_not_fetched_again(
    site: Any, registry: RealRegistry
) -> None:
    """Nor counted as needed space, because they already use it."""
    made = make(SampleImage(layers=(Layer(entries=(file("big", bytes(range(256)) * 4000),)),)))
    registry.push("team/left", "1", made)
    reference = registry.reference("team/left", "1")
    site.settings = SLURM
    site.workload("pretrain_a", Image(reference=reference))

    def costs() -> tuple[int, int]:
        plan = json.loads(
            site.run("--config", site.answers(), "--dry-run", "--format", "json").stdout
        )
        (row,) = [row for row in plan["steps"] if row["step"].startswith("image ")]
        return row["fetch_bytes"], row["disk_bytes"]

    target = site.install / "images" / file_name(reference)
    folder, before = cache_folder(target, None), costs()
    folder.mkdir(parents=True)
    (layer,) = made.layers
    part = folder / f"{layer['digest'].replace(':', '-')}.part"
    part.write_bytes(b"x" * 100)
    assert costs() == (before[0] - 100, before[1] - 100)
    part.with_suffix("").write_bytes(b"")
    assert costs() == (before[0] - layer["size"], before[1] - layer["size"])


def test_another_image_folder(site: Any, registry: RealRegistry, tmp_path: Path) -> None:
    reference = registry.reference("team/tool", "1")
    site.settings = {**SLURM, "image_folder": str(tmp_path / "elsewhere")}
    site.workload("pretrain_a", Image(reference=reference))
    assert site.run().returncode == 0
    assert (tmp_path / "elsewhere" / file_name(reference)).is_file()


def test_every_image_is_checked_before_anything_starts(site: Any, registry: RealRegistry) -> None:
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
    assert re.search(rf"image {re.escape(reference)}: .*sha256:", done.stdout)
    assert not (site.install / "images").exists()


def test_on_runai_an_unreachable_registry_is_a_note(site: Any) -> None:
    """Pods pull the image, not this machine: the plan and the end have a note, and the installation
    succeeds.
    """
    with socket.socket() as closed:  # bound, but not listening
        closed.bind(("127.0.0.1", 0))
        reference = f"127.0.0.1:{closed.getsockname()[1]}/team/tool:1"
        site.settings = RUNAI
        site.workload("pretrain_a", Image(reference=reference))
        plan = site.run("--config", site.answers(), "--dry-run", "--format", "json")
        assert plan.returncode == 0, plan.stderr
        doubt, why = json.loads(plan.stdout)["notes"]
        assert reference.partition("/")[0] in doubt
        assert why == FOR_PODS
        done = site.run()
    assert done.returncode == 0, done.stderr
    assert f"note: image {reference}:" in done.stderr
    assert "1 workload: pretrain_a" in done.stdout
    assert "by reference, " in site.run("status", "--install", site.install).stdout
    assert site.run("verify", "--install", site.install).returncode == 0


def test_a_newer_image_replaces_the_older(site: Any, registry: RealRegistry) -> None:
    """As after an update of the plugin: it is reported and fetched, and the older one is removed on
    demand.
    """
    for tag in ("old", "new"):
        layer = Layer(entries=(file("hello", f"{tag}\n".encode()),))
        registry.push("team/moving", tag, make(SampleImage(layers=(layer,))))
    old, new = (registry.reference("team/moving", tag) for tag in ("old", "new"))
    site.settings = SLURM
    site.workload("pretrain_a", Image(reference=old))
    assert site.run().returncode == 0
    site.workload("pretrain_a", Image(reference=new))
    status = site.run("status", "--install", site.install)
    (line,) = [line for line in status.stdout.splitlines() if line.startswith(f"  image {new}:")]
    assert line.endswith(old)
    assert site.run("verify", "--install", site.install).returncode == 1
    done = site.run("verify", "--repair", "--yes", "--install", site.install)
    assert done.returncode == 0, done.stderr
    images = site.install / "images"
    assert {path.name for path in images.glob("*.sqsh")} == {file_name(old), file_name(new)}
    assert site.run("remove", "--unused", "--yes", "--install", site.install).returncode == 0
    assert {path.name for path in images.glob("[!.]*")} == {
        file_name(new),
        f"{file_name(new)}.json",
    }
    assert site.run("verify", "--deep", "--install", site.install).returncode == 0
