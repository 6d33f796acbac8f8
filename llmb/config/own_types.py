# SPDX-License-Identifier: Apache-2.0
"""llmb's own cluster types, by the same interface as a plugin's: local, slurm, runai."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from llmb.config.cluster_type import ClusterQuestion, ClusterTraits, ClusterType
from llmb.config.runai import RunaiConfig
from llmb.config.slurm import SlurmConfig
from llmb.text.addresses import name_fault, url_fault

_FIND_PROJECT = """\
Run:ai's web page lists your projects under Projects; so does this command:
  runai project list"""
_FIND_CLAIM = """\
Run:ai's web page lists volumes under Data sources; this lists their claims:
  kubectl get pvc -n runai-PROJECT
name is free to choose, path is where pods see the volume, claim is the name of the claim: work:/work:work-claim"""
_MOUNT = ("name", "path", "claim")
_BATCH = ClusterTraits(
    nodes="scheduler", sbatch_options=True, slurm_variables=True, sets_vboost=True, writable_images=True
)
_POOLS = "remove it; runai: {node_pools: [NAME]} in cluster_config.yaml names node pools"
_PRIORITY = "remove it; runai: {spec: {priorityClass: NAME}} in cluster_config.yaml sets the priority"
_PROJECT = "remove it; runai: {project: NAME} in cluster_config.yaml names the project"
_ON_RUNAI = {
    "partition": _POOLS,
    "nodelist": _POOLS,
    "exclude": _POOLS,
    "account": _PROJECT,
    "qos": _PRIORITY,
    "nice": _PRIORITY,
    "reservation": f"{_PROJECT}, which has its own quota",
    "segment": "remove it; Run:ai places pods by the topology of its node pools",
    "others": "remove it; runai: {spec: {...}} in cluster_config.yaml sets fields of a workload",
}
_ON_ONE_MACHINE = {"others": "remove it: jobs run one after another on this machine"}
_PYXIS = replace(_BATCH, runs_in="image-file")


def _slurm(section: Any) -> ClusterTraits:
    own = section if isinstance(section, SlurmConfig) else SlurmConfig()
    return _PYXIS if own.container == "pyxis" else _BATCH


LOCAL = ClusterType(
    name="local",
    create="llmb.clusters.local.local_cluster:create",
    title="only this machine, without a scheduler",
    traits=ClusterTraits(trains="torch", nodes="this-machine", one_machine=True, instead=_ON_ONE_MACHINE),
)
SLURM = ClusterType(
    name="slurm",
    create="llmb.clusters.slurm.slurm_cluster:create",
    title="submit jobs with sbatch",
    label="Slurm",
    schema=SlurmConfig,
    traits=_slurm,
    writes_defaults=True,
)


def read_mount(text: str) -> tuple[str, str, str] | None:
    """Name, path and claim of ``name:path:claim``; None for another form."""
    parts = tuple(part.strip() for part in text.split(":"))
    if len(parts) != 3 or not all(parts) or not parts[1].startswith("/"):
        return None
    return parts[0], parts[1], parts[2]


def _mount(text: str) -> dict[str, str]:
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 3 or not all(parts):
        raise ValueError("write three parts: name:path:claim, such as work:/work:work-claim")
    if not parts[1].startswith("/"):
        raise ValueError(f"the path {parts[1]} is not absolute: start it with /")
    if (reason := name_fault(parts[0], "a volume") or name_fault(parts[2], "a claim")) is not None:
        raise ValueError(reason)
    return dict(zip(_MOUNT, parts, strict=True))


def _shown_mount(value: Any) -> str:
    return ":".join(str(value.get(key, "")) for key in _MOUNT) if isinstance(value, dict) else ""


RUNAI = ClusterType(
    name="runai",
    create="llmb.clusters.runai.runai_cluster:create",
    title="submit jobs to Run:ai",
    label="Run:ai",
    schema=RunaiConfig,
    traits=ClusterTraits(runs_in="image-reference", instead=_ON_RUNAI),
    questions=(
        ClusterQuestion(
            key="base_url",
            label="Run:ai API",
            text="URL of Run:ai's API (https://HOST/api/v1):",
            variable="BASE_URL",
            required=True,
            check=lambda value: url_fault(str(value), "https://HOST/api/v1", schemes=("https", "http")),
            find_out="It is the address of Run:ai's web page, followed by /api/v1.",
        ),
        ClusterQuestion(
            key="project",
            label="project",
            text="Run:ai project:",
            variable="PROJECT_NAME",
            required=True,
            check=lambda value: name_fault(str(value), "a project"),
            find_out=_FIND_PROJECT,
        ),
        ClusterQuestion(
            key="pvc",
            label="volume",
            text="Persistent volume, as name:path:claim:",
            variable="CUSTOM_MOUNT",
            required=True,
            parse=_mount,
            show=_shown_mount,
            find_out=_FIND_CLAIM,
        ),
        ClusterQuestion(
            key="app_id",
            label="application",
            text="ID of the client or application that signs in (none: APP_ID at submission):",
            variable="APP_ID",
            check=lambda value: name_fault(str(value), "an application"),
            empty="APP_ID at submission",
            find_out="Run:ai's web page has it under Applications or Access keys. APP_SECRET is its secret.",
        ),
    ),
    secrets=("APP_SECRET",),
    folder_variable="PVC_DIR",
    detect=lambda environ: environ.get("BASE_URL") or None,
)


@cache
def own_types() -> Mapping[str, ClusterType]:
    """The cluster types of llmb itself by their names, in the order in which llmb-install offers them."""
    return {kind.name: kind for kind in (SLURM, RUNAI, LOCAL)}


def undetermined(name: str) -> ClusterType:
    """A type that no plugin offers here: jobs for it can be planned, not submitted."""
    return ClusterType(name=name, create="")
