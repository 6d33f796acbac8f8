# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of Megatron-Bridge launches: the launch and the recipe of a row."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.bridge.bridge_pretrain import launch
from llmb.builtin.bridge.bridge_rows import table_of
from llmb.builtin.nvidia_images import releases
from llmb.builtin.plugins import builtin_plugins
from llmb.contract.job import Job, Training
from llmb.contract.launch import Launch, Site
from llmb.contract.spec import Workload
from llmb.plugins.loader import load_plugins
from llmb_installer.cluster_types import all_types

Launched = Callable[..., Launch]


@pytest.fixture(scope="session")
def workloads() -> dict[str, Workload]:
    """llmb's own workloads."""
    return dict(load_plugins(builtin_plugins()).workloads())


@pytest.fixture
def site() -> Callable[..., Site]:
    """A Slurm cluster with containers; keywords are fields of the Site."""

    def made(gpu: str, **fields: Any) -> Site:
        known: dict[str, Any] = {
            "cluster_type": "slurm",
            "gpus_per_node": 4 if gpu.startswith("gb") else 8,
        }
        cluster_type = fields.get("cluster_type", "slurm")
        known |= {"traits": all_types()[cluster_type].traits_of(None)}
        known |= {"install": Path("/llmb"), "container": True, "mpi": "pmix"}
        return Site(gpu_type=gpu, **{**known, **fields})

    return made


@pytest.fixture
def launched(workloads: dict[str, Workload], site: Callable[..., Site]) -> Launched:
    """The launch of a row; ``installed`` are fields of the Site, other keywords those of the
    Job.
    """

    def run(
        workload: str,
        size: str,
        gpu: str,
        dtype: str,
        scale: int,
        release: str = "26.08",
        **fields: Any,
    ) -> Launch:
        own, installed = workloads[workload], fields.pop("installed", {})
        assert own.bridge is not None
        row = table_of(own).sizes[size].row(release, gpu, dtype, scale)
        model, place = own.sizes[size].model, site(gpu, **installed)
        layout = (
            (row.tp, row.pp, row.cp, row.vp, row.mbs, row.batch(scale))
            if row
            else (1, 1, 1, None, 1, scale)
        )
        tp, pp, cp, vp, mbs, gbs = layout
        assert model is not None
        assert gbs is not None
        assert mbs is not None
        dp = scale // (tp * pp * cp)
        values: dict[str, Any] = {
            "repeat": 1,
            "profile": False,
            "env": {},
            "max_steps": 50,
            "time_limit": 1800,
            "image": releases()[release].image,
            "experiment_name": f"{workload}_{size}",
            "gpus_per_node": min(place.gpus_per_node, scale),
            "nodes": max(1, scale // place.gpus_per_node),
            "framework": "bridge",
            "release": release,
            "training": Training(
                model=model,
                tp=tp,
                pp=pp,
                cp=cp,
                vp=vp,
                ep=row.ep if row else 1,
                dp=dp,
                mbs=mbs,
                gbs=gbs,
                ga=gbs // (mbs * dp),
                seq_length=model.seq_length,
                num_layers=model.layers,
                learning_rate=3e-4,
            ),
        }
        values |= {
            "workload": workload,
            "model_size": size,
            "dtype": dtype,
            "gpu_type": gpu,
            "scale": scale,
        }
        return launch(own, Job(**{**values, **fields}), place)

    return run


@pytest.fixture
def recipe(launched: Launched) -> Callable[..., dict[str, Any]]:
    """The recipe.json of a row."""

    def run(*row: Any, **fields: Any) -> dict[str, Any]:
        (staged,) = launched(*row, **fields).files
        assert staged.name == "recipe.json"
        found: dict[str, Any] = json.loads(staged.text)
        return found

    return run
