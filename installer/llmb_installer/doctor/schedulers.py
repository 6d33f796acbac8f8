# SPDX-License-Identifier: Apache-2.0
"""Findings about a Slurm cluster, and about a Run:ai project."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from llmb.clusters.runai.token import NotSetError, find_credentials
from llmb.config import ClusterConfig
from llmb.config.cluster_type import ClusterType
from llmb.config.own_types import read_mount
from llmb.config.runai import RunaiConfig, RunaiPvc
from llmb.config.slurm import NO_MPI, SlurmConfig
from llmb.errors import LlmbError
from llmb.system import secrets
from llmb.text.typed import KeyFaultError
from llmb_installer import fits
from llmb_installer.detect import scheduler
from llmb_installer.doctor import RUNAI, SLURM, Finding, finding, wrong

_NEEDED = ("sbatch", "srun", "squeue", "sinfo", "scontrol", "scancel")
KINDS: tuple[Literal["gpu", "cpu"], ...] = ("gpu", "cpu")
_LOGIN = "run on a login node of the cluster, or load Slurm's module"

API, PROJECT, VOLUME, MOUNT, SECRET = "Run:ai's API", "project", "volume", "volume mounted here", "APP_SECRET"
_CHECKS: Mapping[fits.RunaiPart, str] = {"API": API, "project": PROJECT, "secret": SECRET}
_VARIABLES: Mapping[fits.RunaiPart, str] = {
    "API": "BASE_URL",
    "project": "PROJECT_NAME",
    "secret": "APP_SECRET and APP_ID",
}
_CONFIRMED = {API: "it answers", PROJECT: "it exists", SECRET: "it signs in"}
_NO_VOLUME = RunaiPvc(name="", path="/", claim="")  # the API does not need it


def other_findings(kind: ClusterType, config: ClusterConfig | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    """What the check of a plugin's cluster type finds for its section; nothing without an installation."""
    if not kind.source or config is None:
        return
    check, needed_by = f"cluster type {kind.name}", (kind.name,)
    try:
        notes = fits.notes_of(kind, config.section, environ)
    except LlmbError as error:
        yield wrong(check, error, needed_by)
        return
    for note in notes:
        yield Finding(check=check, state="wrong", found=note, needed_by=needed_by)
    if not notes:
        yield Finding(check=check, state="ok", found="nothing is missing", needed_by=needed_by)


def slurm_findings(found: scheduler.SlurmFound | None, own: SlurmConfig | None) -> Iterator[Finding]:
    """Examine what Slurm reported, and whether it has what the configuration ``own`` needs."""
    commands = found.commands if found is not None else ()
    lacking = [name for name in _NEEDED if name not in commands]
    fault = f"missing: {', '.join(lacking)}" if lacking else None
    yield finding("Slurm's commands", fault, ", ".join(commands), (SLURM,), _LOGIN)
    if found is None or lacking:
        return
    if found.fault:
        fix = found.fix or _LOGIN
        yield Finding(check="Slurm answers", state="missing", found=found.fault, needed_by=(SLURM,), fix=fix)
        return
    text = f"{found.cluster}, version {found.version}"
    yield Finding(check="Slurm answers", state="ok", found=text, needed_by=(SLURM,))
    yield from _partitions(found, own)
    yield _gpus(found, own)
    yield from _accounting(found, own)
    yield from _containers(found, own)


def _partitions(found: scheduler.SlurmFound, own: SlurmConfig | None) -> Iterator[Finding]:
    up = [name for name, partition in found.partitions.items() if partition.available == "up"]
    fault = None if up else "none is up"
    yield finding("partitions", fault, ", ".join(up), (SLURM,), "list them with sinfo; ask the administrators")
    named = {kind: own.option("partition", kind) for kind in KINDS} if own is not None else {}
    for kind, names in named.items():
        unknown = [name for name in str(names).split(",") if names is not None and name not in found.partitions]
        if unknown:
            fix = f"set slurm.{kind}.partition in cluster_config.yaml: {', '.join(found.partitions)}"
            text = f"Slurm has no partition {', '.join(unknown)}"
            yield Finding(check=f"{kind} partition", state="missing", found=text, needed_by=(SLURM,), fix=fix)


def _gpus(found: scheduler.SlurmFound, own: SlurmConfig | None) -> Finding:
    check = "GPUs (GRES)"
    kinds = {(kind.gres_type or "gpu", kind.per_node) for kind in found.gpu_kinds()}
    shown = ", ".join(f"{per_node} {name} per node" for name, per_node in sorted(kinds))
    if kinds and own is not None and own.leaves_gpus_open:
        text = f"{shown}, but the configuration requests none: jobs would see no GPU"
        fix = "set slurm.gpu.gres, such as 8, or null for none; llmb-install --yes in the install directory sets it too"
        return Finding(check=check, state="warning", found=text, fix=fix)
    if kinds:
        return Finding(check=check, state="ok", found=shown)
    is_wanted = own is not None and own.option("gres") is not None
    return Finding(
        check=check,
        state="missing" if is_wanted else "warning",
        needed_by=(SLURM,) if is_wanted else (),
        fix="set slurm.gpu.gres to null in cluster_config.yaml"
        if is_wanted
        else "gpu_type: cpu, if nodes have no GPUs",
        found="Slurm has no GPUs as GRES: jobs use whole nodes",
    )


def _accounting(found: scheduler.SlurmFound, own: SlurmConfig | None) -> Iterator[Finding]:
    if not found.accounting:
        text = "none: job states come from squeue and the runs' own files, and are lost sooner"
        yield Finding(check="accounting", state="warning", found=text)
        return
    fault, accounts = None if found.accounts else "you have no account", ", ".join(found.accounts)
    fix = "ask for an account: jobs may be refused without one"
    yield finding("accounting", fault, f"your accounts: {accounts}", (), fix)
    account = own.option("account") if own is not None else None
    if account is not None and found.accounts and account not in found.accounts:
        text, fix = f"'{account}' is not one of yours", f"set slurm.account in cluster_config.yaml: {accounts}"
        yield Finding(check="account", state="missing", found=text, needed_by=(SLURM,), fix=fix)


def _containers(found: scheduler.SlurmFound, own: SlurmConfig | None) -> Iterator[Finding]:
    is_wanted = own is not None and own.container == "pyxis"
    fault = None if found.pyxis else "srun has no option --container-image"
    fix = "'container: none' runs jobs from a Python environment; or ask the administrators for pyxis"
    yield finding("pyxis", fault, "srun has the option --container-image", (SLURM,) if is_wanted else (), fix)
    kind = (own.mpi if own is not None else None) or ("pmix" if is_wanted else None)
    if kind is not None:
        listed = ", ".join(found.mpi) or "none"
        fault = None if kind in (*found.mpi, NO_MPI) else f"srun has no MPI type '{kind}'; it has {listed}"
        fix = "set slurm.mpi in cluster_config.yaml to one of them, or to none"
        yield finding("srun --mpi", fault, f"srun has {kind}", (SLURM,), fix)


def runai_findings(config: ClusterConfig | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Examine the configuration, else the variables that would become its defaults, and ask Run:ai's API."""
    own = config.runai if config is not None else None
    url, project = environ.get("BASE_URL") or None, environ.get("PROJECT_NAME") or None
    pvc = read_mount(environ.get("CUSTOM_MOUNT", ""))
    if own is not None:
        url, project, pvc = own.base_url, own.project, (own.pvc.name, own.pvc.path, own.pvc.claim)
    settings = (
        (API, "BASE_URL", url, "export BASE_URL=https://HOST/api/v1"),
        (PROJECT, "PROJECT_NAME", project, "export PROJECT_NAME=PROJECT"),
        (VOLUME, "CUSTOM_MOUNT", ":".join(pvc) if pvc is not None else None, "export CUSTOM_MOUNT=NAME:PATH:CLAIM"),
    )
    set_up = [
        finding(check, f"{name} is not set" if value is None else None, str(value), (RUNAI,), fix)
        for check, name, value, fix in settings
    ]
    yield from _asked([*set_up, _secret(own, environ)], own, environ)
    folder = environ.get("PVC_DIR") or (pvc[1] if pvc is not None else None)
    here = own.pvc.here if own is not None else Path(folder) if folder else None
    if here is not None:
        fault = None if here.is_dir() else f"there is no folder {here}"
        name = "runai.pvc.local in cluster_config.yaml" if own is not None else "PVC_DIR"
        fix = f"mount the volume on this machine, which reads logs from it; {name} is its folder here"
        yield finding(MOUNT, fault, str(here), (RUNAI,), fix)


def _asked(set_up: list[Finding], own: RunaiConfig | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    """The findings with the answer of the API, which is asked once everything for it is set."""
    lacking = [one.check for one in set_up if one.check in _CONFIRMED and one.state != "ok"]
    if lacking:
        yield from (_unconfirmed(one, f"not checked without {', '.join(lacking)}") for one in set_up)
        return
    try:
        url, project = environ.get("BASE_URL", ""), environ.get("PROJECT_NAME", "")
        refused = fits.ask_runai(own or RunaiConfig(base_url=url, project=project, pvc=_NO_VOLUME), environ)
    except KeyFaultError as error:
        part, fault = "API", wrong(API, LlmbError(str(error), hint=error.hint), (RUNAI,))
    else:
        if refused is None:
            for one in set_up:
                yield replace(one, found=f"{one.found}: {_CONFIRMED[one.check]}") if one.check in _CONFIRMED else one
            return
        part, reason = refused
        fault = wrong(_CHECKS[part], reason, (RUNAI,))
        if own is None:  # the error's own hint is about cluster_config.yaml
            fault = replace(fault, fix=fits.runai_fix(part, _VARIABLES))
    for one in set_up:
        is_unknown = part == "API" or one.check == PROJECT
        unconfirmed = _unconfirmed(one, f"unknown, see {fault.check}") if is_unknown else one
        yield fault if one.check == fault.check else unconfirmed


def _unconfirmed(one: Finding, why: str) -> Finding:
    """A warning for a setting that the API has not confirmed."""
    is_set = one.check in _CONFIRMED and one.state == "ok"
    return replace(one, state="warning", found=f"{one.found}: {why}") if is_set else one


def _secret(own: RunaiConfig | None, environ: Mapping[str, str]) -> Finding:
    try:
        key = find_credentials(own or RunaiConfig(base_url="https://-", project="", pvc=_NO_VOLUME), environ)
    except NotSetError as error:
        fix = f"export {error.name}, or add it to {secrets.SECRETS_FILE}"
        return finding(SECRET, error.message, "", (RUNAI,), fix)
    except LlmbError as error:
        return wrong(SECRET, error, (RUNAI,))
    return finding(SECRET, None, f"it is set, for '{key.id}'", (RUNAI,), None)
