# SPDX-License-Identifier: Apache-2.0
"""Shared by the contract tests: load one plugin, fail with one text, write clusters to plan for."""

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from llmb import api
from llmb.builtin.plugins import builtin_plugins
from llmb.contract.gpus import CPU
from llmb.contract.schema import ClusterConfig
from llmb.core import files
from llmb.errors import Fault, InputFaults, describe
from llmb.plan.config_layers import load_config
from llmb.plugins.loaded import Plugins
from llmb.plugins.loader import load_plugins
from llmb.plugins.sources import GROUP

CANARY = "s3cret-0f-the-contract-test"  # the value of every secret while hooks are called
RUNAI = "llmb_runai"  # the package of the cluster type runai, a distribution of its own
SECRETS = ("HF_TOKEN", "NGC_API_KEY", "APP_SECRET", "WANDB_API_KEY")

# cluster_config.yaml of a cluster of each kind on which a job may run; llmb calls none of them.
CLUSTERS: Mapping[str, Mapping[str, object]] = {
    "local": {"cluster_type": "local"},
    "slurm with containers": {
        "cluster_type": "slurm",
        "slurm": {"account": "a", "container": "pyxis"},
    },
    "slurm without containers": {
        "cluster_type": "slurm",
        "slurm": {"account": "a", "container": "none"},
    },
    "runai": {
        "cluster_type": "runai",
        "runai": {
            "base_url": "https://host/api/v1",
            "project": "p",
            "pvc": {"name": "w", "path": "/w", "claim": "c"},
        },
    },
}


def load(plugin: str, *more: tuple[str, Any]) -> Plugins:
    """llmb's own plugins and the one whose package is ``plugin``, installed or only importable.

    The one of Run:ai is loaded too if it is installed: jobs run on its clusters.
    """
    installed = list(entry_points(group=GROUP))
    tested = [entry for entry in installed if _package(entry) == plugin]
    tested = tested or [EntryPoint(name=plugin, value=plugin, group=GROUP)]
    beside = [entry for entry in installed if _package(entry) == RUNAI != plugin]
    return load_plugins([*more, *builtin_plugins()], entries=[*tested, *beside])


def _package(entry: EntryPoint) -> str:
    return entry.value.partition(":")[0]


@functools.cache
def loaded(plugin: str) -> Plugins:
    """As ``load``, once for all tests of a process."""
    return load(plugin)


def workload_of(plugin: str) -> api.Workload:
    """Return the workload of ``plugin``. Fails the test if it has none."""
    plugins = loaded(plugin)
    workloads = list(plugins.workloads().values())
    for problem in plugins.problems:
        fail(
            list(problem.faults)
            or [Fault(place=problem.source, message=problem.reason, code=problem.code)]
        )
    if not workloads:
        fail(
            [
                Fault(
                    place=plugin,
                    message="it has no workload",
                    hint="implement the hook llmb_workload",
                )
            ]
        )
    return workloads[0]


def fail(faults: Iterable[Fault]) -> NoReturn:
    """Fail the test with every fault, its place and its fix, and no traceback."""
    pytest.fail(describe(InputFaults(list(faults))), pytrace=False)


def fail_if(faults: Iterable[Fault]) -> None:
    """As ``fail``, if there is a fault."""
    if messages := list(faults):
        fail(messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginTarget:
    """A cluster to plan for: its ``name``, its configuration, and the cluster that renders
    scripts.
    """

    name: str
    config: ClusterConfig
    cluster: api.Cluster


def targets(
    folder: Path,
    gpu_type: str,
    plugins: Plugins,
    key: str,
    more: Mapping[str, Mapping[str, object]],
) -> list[PluginTarget]:
    """Return the clusters on which a job of the workload ``key`` for this GPU type may run.

    CPUs are those of one machine. Run:ai is omitted if its plugin is not installed.
    """
    results = []
    cluster_types = plugins.cluster_types()
    for number, (name, own) in enumerate({**CLUSTERS, **more}.items()):
        if gpu_type == CPU and own["cluster_type"] in ("slurm", "runai"):
            continue
        if name == "runai" and "runai" not in cluster_types:
            continue
        at = folder / f"install-{number}"
        installed = {"config": {key: {"venv_path": str(at / "venv"), "venvs": {}}}}
        config = _config(at, {"gpu_type": gpu_type, "workloads": installed, **own}, plugins)
        cluster = cluster_types[config.cluster_type].make(config)
        results.append(PluginTarget(name=name, config=config, cluster=cluster))
    return results


def config_of(folder: Path, plugin: str, data: Mapping[str, object]) -> ClusterConfig:
    """Return the configuration of an install directory in ``folder``, for CPUs. ``data`` are keys
    of cluster_config.yaml.
    """
    return _config(folder / "install", {"gpu_type": CPU, **data}, loaded(plugin))


def _config(folder: Path, data: Mapping[str, object], plugins: Plugins) -> ClusterConfig:
    text = yaml.safe_dump({"schema_version": 2, **data})
    files.write_text(folder / "cluster_config.yaml", text)
    config, _ = load_config(
        folder, {}, types=lambda: plugins.gpu_types, cluster_types=plugins.cluster_types
    )
    return config


@contextmanager
def elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another current folder, and secrets in the environment: no answer of a pure hook depends on
    them.
    """
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        for name in SECRETS:
            patch.setenv(name, CANARY)
        before = dict(os.environ)
        yield
        if dict(os.environ) != before:
            changed = sorted({name for name, _ in before.items() ^ os.environ.items()})
            fail(
                [
                    Fault(
                        message=f"a hook changed the environment: {', '.join(changed)}",
                        hint="leave it unchanged",
                    )
                ]
            )
