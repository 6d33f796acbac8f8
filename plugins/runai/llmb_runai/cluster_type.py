# SPDX-License-Identifier: Apache-2.0
"""Run:ai as a cluster type: its section, its questions, and how jobs run there."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmb.api import ClusterQuestion, ClusterTraits, ClusterType, name_fault, url_fault
from llmb_runai.runai_config import RunaiConfig, claim_fault

if TYPE_CHECKING:
    from llmb.api import Finding

_FIND_PROJECT = """\
Run:ai's web page lists your projects under Projects; so does this command:
  runai project list"""
_FIND_CLAIM = """\
Run:ai's web page lists volumes under Data sources; this lists their claims:
  kubectl get pvc -n runai-PROJECT
name is free to choose, path is where pods see the volume, claim is the name of the claim: work:/work:work-claim"""
_MOUNT = ("name", "path", "claim")
_POOLS = "remove it; runai: {node_pools: [NAME]} in cluster_config.yaml names node pools"
_PRIORITY = (
    "remove it; runai: {spec: {priorityClass: NAME}} in cluster_config.yaml sets the priority"
)
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


def _mount(text: str) -> dict[str, str]:
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 3 or not all(parts):
        raise ValueError("write three parts: name:path:claim, such as work:/work:work-claim")
    if not parts[1].startswith("/"):
        raise ValueError(f"the path {parts[1]} is not absolute: start it with /")
    if (reason := name_fault(parts[0], "a volume") or claim_fault(parts[2])) is not None:
        raise ValueError(reason)
    return dict(zip(_MOUNT, parts, strict=True))


def _notes(section: RunaiConfig | None, environ: Mapping[str, str]) -> Sequence[str]:
    from llmb_runai import findings

    return [*findings.notes(section, environ)]


def _folder_fault(section: RunaiConfig | None, folder: Path) -> str | None:
    from llmb_runai import findings

    return findings.folder_fault(section, folder)


def _examine(section: RunaiConfig | None, environ: Mapping[str, str]) -> "Iterable[Finding]":
    from llmb_runai import findings

    return findings.examine(section, environ)


def _wrong_address(value: object) -> str | None:
    is_here = re.match(r"http://(127\.0\.0\.1|localhost)[:/]", str(value))  # as the section allows
    return None if is_here else url_fault(str(value), "https://HOST/api/v1")


def _site_names(section: RunaiConfig) -> dict[str, list[str]]:
    host = re.sub(r"^\w+://|[/:].*", "", section.base_url)
    return {"project": [section.project], "address": [host]}


def _shown_mount(value: Any) -> str:
    return ":".join(str(value.get(key, "")) for key in _MOUNT) if isinstance(value, dict) else ""


RUNAI = ClusterType(
    name="runai",
    create="llmb_runai.runai_cluster:create",
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
            check=_wrong_address,
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
            find_out=(
                "Run:ai's web page has it under Applications or Access keys. APP_SECRET is its"
                " secret."
            ),
        ),
    ),
    secrets=("APP_SECRET",),
    site_names=_site_names,
    check=_notes,
    folder_fault=_folder_fault,
    examine=_examine,
    folder_variable="PVC_DIR",
    detect=lambda environ: environ.get("BASE_URL") or None,
)
