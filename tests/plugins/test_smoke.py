# SPDX-License-Identifier: Apache-2.0
"""Tests the size ``smoke``: a few real layers for a first run on a cluster, in the memory of one
GPU of 80 GB.
"""

from typing import Any

import pytest

from llmb.contract.gpus import known_types
from llmb.contract.job import Job
from llmb.contract.model import ModelShape, parameters
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import Workload
from llmb.contract.window import default_window
from llmb.plan.discover import discover
from llmb.plan.find_reference import find_reference
from llmb.plan.plan import make_plan
from llmb.plan.published_tables import read_published
from llmb.plan.select import Selection
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

KEYS = ("pretrain_llama3.1", "pretrain_nemotron4", "pretrain_nemotronh")
SCALES = (1, 2, 4, 8, 16)
SMALLEST = {"pretrain_llama3.1": "8b", "pretrain_nemotron4": "15b", "pretrain_nemotronh": "56b"}
# Bytes of a parameter in bf16 with Adam: weight 2, gradient 2 and its copy in FP32 for the
# optimizer's step 4, master weight and both moments 4 each. FP8 keeps a weight and its transpose in
# one byte each.
STATE = 2 + 2 + 4 + 3 * 4
LOGIT = 2 + 4 + 4  # in bf16, and as the loss and its gradient in FP32
CARD = 80e9
SPARE = 0.8  # CUDA's context, NCCL's and cuBLAS's buffers, and the allocator's gaps need the rest

Workloads = dict[str, Workload]


def planned(workloads: Workloads, key: str, gpu: str, **request: Any) -> tuple[Job, ...]:
    """The jobs of a request for smoke."""
    config = ClusterConfig(cluster_type="slurm", gpu_type=gpu, kind=all_types()["slurm"])
    plan = make_plan(
        [job_entry(workload=key, size="smoke", **{"scales": SCALES, **request})], workloads, config
    )
    assert not plan.faults
    return plan.jobs


def activations(model: ModelShape) -> int:
    """Bytes that one sample leaves for its backward pass, in bf16 and none computed again;
    attention keeps no square.

    The inputs of the norms, of each linear layer and of the activation functions.
    """
    hidden, kv = model.hidden, 2 * model.kv_groups * (model.head_dim or model.hidden // model.heads)
    attention = 2 * hidden + (hidden + kv) + 2 * hidden
    mlp = 2 * hidden + (3 if model.gated else 2) * model.ffn
    kinds = {"*": attention, "-": mlp}
    if model.mamba is not None:
        inner = model.mamba.heads * model.mamba.head_dim
        projected = 2 * inner + 2 * model.mamba.groups * model.mamba.state + model.mamba.heads
        kinds["M"] = 2 * hidden + 2 * projected + 2 * inner
    letters = model.pattern or "*-" * model.layers
    return 2 * model.seq_length * sum(kinds[letter] for letter in letters)


@pytest.mark.parametrize("key", KEYS)
def test_it_fits_one_gpu_of_80_gb(workloads: Workloads, key: str) -> None:
    (job,) = {
        job.trained.model: job for job in planned(workloads, key, "h100", scales=(1,))
    }.values()
    assert (job.trained.tp, job.trained.mbs) == (1, 1)
    model = job.trained.model
    needed = STATE * parameters(model) + activations(model) + LOGIT * model.seq_length * model.vocab
    assert 0.5 * CARD < needed < SPARE * CARD
    assert {row.memory_gb for row in workloads[key].sizes["smoke"].rows} == {80}


@pytest.mark.parametrize("key", KEYS)
def test_its_layers_are_those_of_the_smallest_model(workloads: Workloads, key: str) -> None:
    smoke, real = workloads[key].sizes["smoke"], workloads[key].sizes[SMALLEST[key]]
    for name in (
        "architecture",
        "hidden",
        "ffn",
        "heads",
        "head_dim",
        "kv_groups",
        "seq_length",
        "gated",
        "mamba",
    ):
        assert getattr(smoke.model, name) == getattr(real.model, name), name
    assert set(smoke.trained_model.pattern or "") == set(real.trained_model.pattern or "")
    assert smoke.nemo is not None
    assert real.nemo is not None
    for name in (
        "recipe",
        "model",
        "attention_backend",
        "cross_entropy",
        "wgrad_deferral_limit",
        "environment",
    ):
        assert getattr(smoke.nemo, name) == getattr(real.nemo, name), name
    assert (smoke.nemo.vocab or 0) - smoke.trained_model.vocab == (
        real.nemo.vocab or 0
    ) - real.trained_model.vocab


@pytest.mark.parametrize("key", KEYS)
def test_it_runs_wherever_the_workload_does(workloads: Workloads, key: str) -> None:
    sizes = workloads[key].sizes
    others = {
        gpu for name, size in sizes.items() if name != "smoke" for gpu in size.gpu_types()
    } - {"any"}
    assert set(sizes["smoke"].gpu_types()) == others
    for gpu in others:
        dtypes = sizes["smoke"].dtypes(gpu)
        assert set(dtypes) == {
            dtype for name in sizes if name != "tiny" for dtype in sizes[name].dtypes(gpu)
        }
        jobs = planned(workloads, key, gpu, dtypes=tuple(dtypes))
        assert [job.trained.tp for job in jobs] == [1, 2, 2, 2, 2] * len(dtypes)
        assert {job.max_steps for job in jobs} == {20}
        assert {job.nodes * job.gpus_per_node - job.scale for job in jobs} == {0}
        assert max(job.gpus_per_node for job in jobs) == known_types()[gpu].gpus_per_node
        assert all("steps" not in job.experiment_name for job in jobs)


def test_its_window_follows_the_rule(workloads: Workloads) -> None:
    window = default_window(planned(workloads, KEYS[0], "h100", scales=(1,))[0].max_steps)
    assert (window.first, window.last) == (4, 18)  # 0.22 and 0.88 of 20 steps


@pytest.mark.parametrize("key", KEYS)
def test_nothing_published_is_comparable(workloads: Workloads, key: str) -> None:
    figures = read_published(workloads[key])
    assert figures
    for job in planned(workloads, key, "h100"):
        figure, reason = find_reference(job.settings, figures)
        assert figure is None
        assert "size smoke" in reason


@pytest.mark.parametrize("gpu", ["h100", "b200", "cpu"])
def test_discovery_leaves_it_out_unless_it_is_named(workloads: Workloads, gpu: str) -> None:
    config = ClusterConfig(cluster_type="slurm", gpu_type=gpu, kind=all_types()["slurm"])
    found, _ = discover(workloads, config, Selection(max_scale=4096), gpu)
    assert found
    assert "smoke" not in {entry.settings.model_size for entry in found}
    if gpu != "cpu":
        named, _ = discover(
            workloads, config, Selection(workloads=("llama3.1_smoke",), scales=(2,)), gpu
        )
        assert {(entry.settings.model_size, entry.scales) for entry in named} == {("smoke", (2,))}


def test_sets_steps_over_its_own(workloads: Workloads) -> None:
    (job,) = planned(
        workloads, KEYS[0], "h100", scales=(1,), dtypes=("bf16",), params={"max_steps": (5,)}
    )
    assert job.max_steps == 5
    assert "_steps5" in job.experiment_name
