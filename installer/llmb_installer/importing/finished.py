# SPDX-License-Identifier: Apache-2.0
"""Turns finished runs of exemplar-performance into records of llmb, from their logs and the files next to them."""

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import llmb
from llmb.config.exemplar import TOOL
from llmb.errors import LlmbError
from llmb.logs.formats import NEMO2
from llmb.logs.reader import read_log
from llmb.logs.samples import Samples
from llmb.results.describe_log import describe_log
from llmb.results.description import Description
from llmb.results.find import job_of, logs_beside, profiled_beside
from llmb.results.launcher_config import LauncherConfig, config_near, described_by, window_of
from llmb.results.log_result import experiment_of
from llmb.runs.job import Job, Training
from llmb.runs.launch import Launch, Program
from llmb.runs.record import Origin, RunRecord
from llmb.runs.state import ACTIVE, COMPLETED, ENDS, FAILED, WAITING, JobState
from llmb.system.process import ProcessId
from llmb.workload.bridge import BRIDGE, DTYPES, NEMO, spelled
from llmb.workload.gpus import GpuTypes
from llmb.workload.spec import Workload
from llmb.workload.switches import Switches
from llmb_installer.importing.own_config import holds_secret

_MAY_RUN = 3600.0  # seconds since the last line of an unfinished log, before which the run may still be running
_USUAL_STEPS = 50
_STAMPED = re.compile(r"(.+)_(\d{9,11})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """A run that can be taken: its record (``directory`` is below the target) and its end, and its original files."""

    record: RunRecord
    state: JobState
    log: Path
    batch_log: Path | None


class NotTaken(NamedTuple):
    """Why a run is not taken."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What every run of an import has in common.

    ``root``: the folder of the target's runs; ``gpu_type``: of runs without a file that names it; ``gpus_per_node``: of
    the cluster, None for that of the GPU type; ``states``: Slurm's last known states by job; ``now`` in seconds.
    """

    root: Path
    workloads: Mapping[str, Workload]
    types: GpuTypes
    gpu_type: str
    gpus_per_node: int | None
    release: str | None
    states: Mapping[str, str]
    now: float


def find_run(log: Path, common: Common) -> FoundRun | NotTaken:
    """The run that wrote ``log``, or why it is not taken."""
    config = config_near(log) or LauncherConfig()
    try:
        samples = read_log(log, NEMO2)
        changed = log.stat().st_mtime
    except LlmbError as error:
        return NotTaken(error.code, error.message)
    except OSError as error:
        return NotTaken("file-unreadable", f"its log cannot be read: {error.strerror}")
    if unknown := _unknown(config, common):
        return unknown
    kind = None if config.gpu_type else common.gpu_type
    found = describe_log(log, samples, common.workloads, Description(gpu_type=kind))
    if found.dtype is None and config.dtype is not None:  # Megatron-Bridge's dtypes are in the names alone
        given = Description(gpu_type=kind, dtype=spelled(config.dtype, DTYPES))
        found = describe_log(log, samples, common.workloads, given)
    job = _job(log, found, samples, config, common)
    if isinstance(job, NotTaken):
        return job
    state = _state(samples, job_of(log.name) or config.job or "", changed, common)
    if isinstance(state, NotTaken):
        return state
    record = _record(log, job, config, changed, common)
    return FoundRun(record=record, state=state, log=log, batch_log=next(iter(logs_beside(log)[1:]), None))


def _unknown(config: LauncherConfig, common: Common) -> NotTaken | None:
    """Why llmb does not know what the file of the run names."""
    found = described_by(config, common.workloads)
    if config.workload is not None and found.workload is None:
        return NotTaken("workload-not-offered", f"no plugin offers {config.workload}")
    if config.size is not None and found.workload is not None and found.size is None:
        return NotTaken("size-unknown", f"{found.workload} has no size {config.size}")
    if found.gpu_type is not None and found.gpu_type not in common.types:
        return NotTaken("gpu-type-unknown", f"its GPU type {found.gpu_type} is not known")
    return None


def _job(log: Path, found: Description, samples: Samples, config: LauncherConfig, common: Common) -> Job | NotTaken:
    """The job, complete; not taken where a number of it is unknown, as llmb never guesses one."""
    workload = common.workloads.get(found.workload or "")
    if workload is None:
        return NotTaken("workload-not-offered", f"no plugin offers the workload of {_name_of(log)}")
    if found.untrained:
        return NotTaken("not-training", f"{workload.key} trains no model, and llmb reads its results in another form")
    missing = [name for name in ("tp", "pp", "cp", "mbs") if getattr(found, name) is None]
    if found.missing() or missing:
        names = ", ".join([*found.missing(), *missing])
        return NotTaken("settings-unknown", f"unknown: {names}; llmb-run parse {log} shows what it measured")
    assert found.model is not None
    assert found.size is not None
    assert found.gpus is not None
    assert found.gpu_type is not None
    training = _training(found, workload)
    if training is None:
        return NotTaken("settings-conflict", "its batch and parallelism do not divide its number of GPUs")
    size = workload.sizes[found.size]
    per_node = config.gpus_per_node or common.gpus_per_node or common.types[found.gpu_type].gpus_per_node
    last = samples.max_iteration if samples.last is None else samples.last
    release = config.framework_release or found.release
    return Job(
        workload=workload.key,
        model_size=found.size,
        dtype=found.dtype or "",
        gpu_type=found.gpu_type,
        scale=found.gpus,
        repeat=1,
        profile=bool(found.profiled) or bool(profiled_beside(log)),
        env={name: value for name, value in config.env.items() if not holds_secret(name, value)},
        max_steps=_USUAL_STEPS if last is None else last + 1,
        nodes=math.ceil(found.gpus / per_node),
        gpus_per_node=per_node,
        time_limit=60 * (size.time_limit_minutes or workload.time_limit_minutes),
        image=config.image,
        experiment_name=_name_of(log),
        training=training,
        switches=Switches(
            nccl_trace=found.traced or None,
            save_checkpoint=found.saves or None,
            fp8="current" if found.fp8 == "current" else None,
        ),
        framework=found.framework or NEMO,
        release=release if found.framework == BRIDGE else None,
        dotted={name: value for name, value in config.settings.items() if not holds_secret(name, value)},
    )


def _training(found: Description, workload: Workload) -> Training | None:
    """The numbers of its training; None where they do not divide."""
    tp, pp, cp, mbs, gbs = (getattr(found, name) or 1 for name in ("tp", "pp", "cp", "mbs", "gbs"))
    gpus, model = found.gpus or 0, found.model
    dp, rest = divmod(gpus, tp * pp * cp)
    if rest or not dp or gbs % (mbs * dp) or model is None:
        return None
    return Training(
        model=model,
        tp=tp,
        pp=pp,
        cp=cp,
        vp=found.vp,
        ep=found.ep or 1,
        dp=dp,
        mbs=mbs,
        gbs=gbs,
        ga=gbs // (mbs * dp),
        seq_length=found.seq_length or model.seq_length,
        num_layers=model.layers,
        learning_rate=workload.sizes[found.size or ""].learning_rate,
    )


def _state(samples: Samples, job: str, changed: float, common: Common) -> JobState | NotTaken:
    """How the run ended, by its log, else by the history of jobs."""
    if samples.is_complete and samples.last is not None:
        return JobState(state=COMPLETED, ended=changed)
    seen = common.states.get(job, "")
    if seen in ACTIVE or seen in WAITING or (seen not in ENDS and common.now - changed < _MAY_RUN):
        return NotTaken("run-not-ended", "it may still be running: import again when it has ended")
    if seen in ENDS and not (seen == COMPLETED and not samples.steps):
        return JobState(state=seen, ended=changed)
    return JobState(state=FAILED, ended=changed)


def _record(log: Path, job: Job, config: LauncherConfig, changed: float, common: Common) -> RunRecord:
    """The record, whose id follows from the original's place: another import finds it again."""
    number = job_of(log.name) or config.job
    stamped = _STAMPED.fullmatch(log.absolute().parent.parent.name)
    created = config.launched or (float(stamped[2]) if stamped else changed)
    digest = hashlib.sha256(str(log.resolve()).encode()).hexdigest()
    release = config.release or common.release
    name = job.experiment_name
    timestamp = stamped[2] if stamped else number or digest[:8]
    directory = common.root / job.workload / "experiments" / name / f"{name}_{timestamp}"
    return RunRecord(
        id=f"i{digest[:7]}",
        created=created,
        llmb_version=llmb.__version__,
        cluster_type="slurm",
        directory=directory,
        job=job,
        launch=Launch(
            name=name,
            nodes=job.nodes,
            ranks_per_node=job.gpus_per_node,
            time_limit=job.time_limit,
            program=Program(argv=("exemplar-performance",)),
            image=job.image,
            environment=job.env,
            workload=job.workload,
            gpu_type=job.gpu_type,
        ),
        script_name="",
        submitter=ProcessId.current(),
        scheduler_id=number,
        origin=Origin(
            tool=TOOL, folder=log.absolute().parent, release=release, window=window_of(release, job.max_steps)
        ),
    )


def _name_of(log: Path) -> str:
    """The experiment's name: the run's folder's in ``<name>_<timestamp>/<name>``, else the log's without its job."""
    stamped = _STAMPED.fullmatch(log.absolute().parent.parent.name)
    if stamped and stamped[1] == log.parent.name:
        return log.parent.name
    name = experiment_of(log)
    return name if re.search(r"_(?:bf16|fp8)_\d+$", name) else re.sub(r"_\d{3,}$", "", name)
