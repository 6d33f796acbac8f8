# SPDX-License-Identifier: Apache-2.0
"""The hint of llmb-run for a missing image or environment, when it is followed, installs just
that.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.switches import Switches
from llmb.plan import config_layers
from llmb.plan.plan import make_plan
from llmb.plugins.loader import load_plugins
from llmb.run.prepare import faults_here, prepare
from llmb_installer import record
from llmb_installer.answers.schema import to_yaml
from llmb_installer.cluster_types import all_types
from llmb_installer.gather import read_layers
from llmb_installer.images.image_step import ImageStep
from llmb_installer.planning.plan import (
    InstallPlan,
    load_offered,
    plan_install,
    read_recorded_answers,
    resolve_intent,
)
from llmb_installer.planning.status import find_status
from llmb_installer.venv.venv_step import VenvStep
from llmb_testing.entries import job_entry

PLUGINS = load_plugins(builtin_plugins())
Cluster = Callable[..., Path]


def missing(install: Path, *, gpu_type: str | None = None, **wanted: Any) -> dict[str, str | None]:
    """The codes of what the job lacks there, with the hints."""
    config, _ = config_layers.load_config(
        install, {}, types=lambda: PLUGINS.gpu_types, cluster_types=all_types
    )
    request = job_entry(
        workload="pretrain_llama3.1", size="8b", dtypes=("bf16",), scales=(8,), **wanted
    )
    plan = make_plan([request], PLUGINS.workloads(), config, gpu_type=gpu_type)
    assert not plan.faults
    (item,), faults = prepare(plan, PLUGINS, config)
    assert item.launch is not None
    assert not faults
    return {fault.code: fault.hint for fault in faults_here(item.launch, config)}


def added(words: list[str], install: Path) -> InstallPlan:
    """The plan of ``llmb-install add WORKLOAD --set ... --install DIR --yes``."""
    assert words[:3] == ["llmb-install", "add", "pretrain_llama3.1"]
    assert words[-3:] == ["--install", str(install), "--yes"]
    pairs = words[3:-3]
    assert set(pairs[::2]) <= {"--set"}
    offered = load_offered()
    asked = replace(
        read_recorded_answers(install, offered, pairs[1::2]), workloads=("pretrain_llama3.1",)
    )
    intent, _ = resolve_intent(asked, offered, before=record.load(install).config)
    return plan_install(intent)


SLURM = {"gpu": {"partition": "batch", "gres": 8}}
BARE = {**SLURM, "container": "none"}
# In site-packages, by environment: the distributions of the package index, as pip installs them.
CONTENTS = {
    "nemo": ("nemo", "megatron", "nemo_run", "nemo_toolkit-2.3.1.dist-info"),
    "bridge": ("megatron", "megatron_bridge-0.6.0.dist-info", "megatron_core-0.19.0.dist-info"),
    "torch": (),
}


@pytest.mark.parametrize(
    ("gpu", "slurm", "install", "wanted", "built"),
    [
        ("h100", SLURM, {}, {"framework": "bridge"}, {"26.08"}),
        ("h100", SLURM, {}, {"release": "26.02.01"}, {"26.02.01"}),
        ("h100", SLURM, {"framework": "nemo"}, {"framework": "bridge"}, {"26.08"}),
        ("h100", SLURM, {"framework": "bridge"}, {"framework": "nemo"}, {"25.04.01"}),
        ("h100", SLURM, {"framework": "bridge"}, {}, {"26.08"}),
        ("h100", SLURM, {"framework": "both"}, {"framework": "bridge"}, {"26.08"}),
        ("h100", SLURM, {}, {}, {"25.04.01"}),
        ("gb300", SLURM, {}, {}, {"26.08"}),
        ("b200", SLURM, {}, {}, {"26.08"}),
        ("h100", BARE, {}, {"framework": "bridge"}, {"bridge-0.6.0"}),
        ("h100", BARE, {"framework": "nemo"}, {"release": "26.02.01"}, {"bridge-0.3.1"}),
        ("h100", BARE, {"framework": "both"}, {"release": "26.02.01"}, {"bridge-0.3.1"}),
        ("h100", BARE, {"framework": "bridge"}, {"framework": "nemo"}, {"nemo"}),
    ],
)
def test_the_hint_installs_what_is_missing(
    gpu: str,
    slurm: Mapping[str, Any],
    install: Mapping[str, Any],
    wanted: Mapping[str, Any],
    built: set[str],
    cluster: Cluster,
) -> None:
    machine = "aarch64" if gpu.startswith("gb") else "x86_64"
    how = {"node_architecture": machine, "venv_type": "venv", **install}
    folder = cluster(
        gpu_type=gpu,
        slurm=dict(slurm),
        install=how,
        workloads={"installed": ["pretrain_llama3.1"], "config": {}},
    )
    found = missing(folder, **wanted)
    code = "venv-not-set" if slurm is BARE else "image-missing"
    plan = added(shlex.split(str(found[code])), folder)
    steps = [step for step in plan.todo if isinstance(step, ImageStep | VenvStep)]
    assert built <= {step.name.rpartition(":")[2] for step in steps}
    # What the steps make, and the configuration that is written.
    for step in steps:
        if isinstance(step, ImageStep) and step.target is not None:
            step.target.parent.mkdir(exist_ok=True)
            step.target.touch()
        elif isinstance(step, VenvStep):
            (step.path / "bin").mkdir(parents=True)
            (step.path / "bin/python").touch(mode=0o755)
            for name in CONTENTS[step.name.partition("-")[0]]:
                (step.path / "lib/python3.12/site-packages" / name).mkdir(parents=True)
    (folder / "cluster_config.yaml").write_text(yaml.safe_dump(plan.config.data))
    assert not {"image-missing", "venv-not-set", "venv-missing", "package-missing"} & {
        *missing(folder, **wanted)
    }


def test_the_hint_for_a_gpu_type_that_was_added_by_hand(cluster: Cluster) -> None:
    """The recorded answers do not have it, and cluster_config.yaml does: status and verify miss its
    image too.
    """
    how = {"node_architecture": "x86_64", "venv_type": "venv"}
    folder = cluster(
        gpu_type="h100",
        slurm=dict(SLURM),
        install=how,
        workloads={"installed": ["pretrain_llama3.1"]},
    )
    path, offered = folder / "cluster_config.yaml", load_offered()
    asked = replace(read_recorded_answers(folder, offered), workloads=("pretrain_llama3.1",))
    intent, _ = resolve_intent(asked, offered)
    record.save_answers(folder, to_yaml(asked))
    record.save(folder, record.InstallRecord(config=plan_install(intent).config.data))
    assert "image nvcr.io/nvidia/nemo:26.08" not in find_status(folder, record.load(folder)).wanted
    data = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**data, "gpu_types": {"gb300": {"partition": "batch2"}}}))

    hint = missing(folder, gpu_type="gb300")["image-missing"]
    plan = added(shlex.split(str(hint)), folder)
    assert "image nvcr.io/nvidia/nemo:26.08" in [step.key for step in plan.todo]
    assert plan.config.data["gpu_types"] == {"gb300": {"partition": "batch2"}}
    assert "image nvcr.io/nvidia/nemo:26.08" in find_status(folder, record.load(folder)).wanted
    answers = read_layers(
        record.answers_path(folder), folder, ["gpu_types.gb300.partition=other"], recorded=True
    )
    assert answers.data["gpu_types"] == {"gb300": {"partition": "other"}}, (
        "the command line overrides it"
    )

    # What the installer itself has written since, and a user removed, is not asked for any more.
    record.save_answers(folder, to_yaml(plan.intent.asked))
    record.save(folder, record.InstallRecord(config=plan.config.data))
    assert read_recorded_answers(folder, offered).gpu_types
    path.write_text(yaml.safe_dump(data))
    assert not read_recorded_answers(folder, offered).gpu_types


def test_another_release_beside_that_of_the_install_is_one_image(cluster: Cluster) -> None:
    """The install keeps its own: bridge_release is one release."""
    how = {"node_architecture": "x86_64", "framework": "both"}
    folder = cluster(slurm=SLURM, install=how, workloads={"installed": ["pretrain_llama3.1"]})
    hint = missing(folder, release="26.02.01")["image-missing"]
    assert shlex.split(str(hint)) == [
        "llmb-install",
        "image",
        "nvcr.io/nvidia/nemo:26.02.01",
        "--install",
        str(folder),
    ]


@pytest.mark.parametrize("framework", ["nemo", "bridge"])
def test_an_image_of_your_own_is_built_alone(framework: str, cluster: Cluster) -> None:
    folder = cluster(
        slurm=SLURM, install={"node_architecture": "x86_64"}, workloads={"installed": ["llama3.1"]}
    )
    switches = Switches(image="registry.site/team/mine:1")
    hint = missing(folder, framework=framework, switches=switches)["image-missing"]
    assert shlex.split(str(hint)) == [
        "llmb-install",
        "image",
        "registry.site/team/mine:1",
        "--install",
        str(folder),
    ]


def test_the_environment_of_another_release_is_none(cluster: Cluster) -> None:
    """The only environment is of 0.6.0, and release 26.02.01 has 0.3.1."""
    own = {"venv_path": "/x/venvs/bridge-0.6.0"}
    installed = {"installed": ["pretrain_llama3.1"], "config": {"pretrain_llama3.1": own}}
    how = {"node_architecture": "x86_64", "framework": "bridge"}
    folder = cluster(slurm=BARE, install=how, workloads=installed)
    hint = str(missing(folder, release="26.02.01")["venv-not-set"])
    assert shlex.split(hint)[3:7] == [
        "--set",
        "framework=bridge",
        "--set",
        "bridge_release=26.02.01",
    ]
    assert "venv-missing" in missing(folder)
