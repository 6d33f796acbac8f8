# SPDX-License-Identifier: Apache-2.0
"""Tests that the plugins of docs/write-a-plugin.md run unchanged on a real Slurm, with and without
containers.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.plan.images import image_path

Site = Any  # the class is in conftest.py
IMAGES = ("docker.io/library/debian:12", "docker.io/library/python:3.12-slim")
CASES = {"storage": ("write", "bandwidth", 10), "requests": ("files", "latency", 20)}


@pytest.fixture(params=["none", "pyxis"])
def site(
    request: pytest.FixtureRequest,
    kit: Any,
    site_at: Callable[..., Site],
    pyxis_mock: Callable[..., None],
    smallest_image: bytes,
) -> Site:
    """An install directory; the image is only a superblock, and its ranks see this machine's
    commands.
    """
    slurm = {"container": request.param, "mpi": "none", "gpu": {"partition": "gpu", "gres": 8}}
    found = site_at(kit, slurm=slurm, workloads={"installed": [*CASES]})
    if request.param == "pyxis":
        pyxis_mock(kit)
        for image in IMAGES:
            path = image_path(image, found.config)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(smallest_image)
    return found


@pytest.mark.parametrize("key", CASES)
def test_a_documented_plugin_runs_unchanged(key: str, site: Site, documented_plugins: Path) -> None:
    size, metric, steps = CASES[key]
    done = site.llmb(
        "single", "-w", key, "-s", size, "--scale", 2, "--wait", PYTHONPATH=str(documented_plugins)
    )
    assert done.returncode == 0, done.stderr
    done = site.llmb("results", "--format", "json", PYTHONPATH=str(documented_plugins))
    (result,) = json.loads(done.stdout)["results"]
    assert (result["status"], result["steps"], result["headline"]) == ("Success", steps, metric), (
        result
    )
    assert result["metrics"][metric]["mean"] > 0
