# SPDX-License-Identifier: Apache-2.0
"""Turns finished runs of another tool into records of llmb."""

import base64
import hashlib
import math
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import llmb
from llmb.contract.foreign_install import ForeignInstall
from llmb.contract.formats import NEMO2
from llmb.contract.gpus import GpuTypes
from llmb.contract.job import Job, Training
from llmb.contract.launch import Launch, Program
from llmb.contract.log_settings import LogSettings
from llmb.contract.record import Origin, RunRecord
from llmb.contract.samples import Samples
from llmb.contract.settings import Settings
from llmb.contract.spec import BRIDGE, NEMO, Workload
from llmb.contract.state import ACTIVE, COMPLETED, ENDS, FAILED, WAITING, JobState
from llmb.contract.switches import Switches
from llmb.core.process import ProcessId
from llmb.core.secret_patterns import without_secrets
from llmb.core.values import dataclass
from llmb.errors import LlmbError
from llmb.measure.describe_log import describe_log, missing, model_of, settings_beside
from llmb.measure.find_logs import job_of, logs_beside, profiled_beside
from llmb.measure.log_reader import read_log
from llmb.measure.log_result import experiment_of
from llmb.measure.root_cause import end_in

# seconds since the last line of an unfinished log, before which the run may still be running
_MAY_RUN = 3600.0
_USUAL_STEPS = 50
_LONGEST_NAME = 230  # bytes: with the timestamp, a file's name has at most 255
_STAMPED = re.compile(r"(.+)_(\d{9,11})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """A run that can be taken: its record, whose directory is in the target, its end, its files."""

    record: RunRecord
    state: JobState
    log: Path
    batch_log: Path | None
    #: The name of the image's file in the source.
    image_file: str | None


class NotTaken(NamedTuple):
    """The reason why a run is not taken."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """The values that all runs of the import of ``source`` share.

    Runs go below ``root``. ``gpu_type`` is for runs without a file that names it. ``gpus_per_node``
    is of the cluster, None for the number of the GPU type. ``now`` is in seconds.
    """

    source: ForeignInstall
    root: Path
    workloads: Mapping[str, Workload]
    types: GpuTypes
    gpu_type: str
    gpus_per_node: int | None
    now: float


def find_run(
    log_and_beside: tuple[Path, LogSettings | None], common: Common
) -> FoundRun | NotTaken:
    """Return the run that wrote a log, or why it is not taken.

    With each log comes what a plugin found in a file beside it.
    """
    log, beside = log_and_beside
    config = beside or LogSettings()
    try:
        samples = read_log(log, NEMO2)
        changed = log.stat().st_mtime
    except LlmbError as error:
        return NotTaken(error.code, error.message)
    except OSError as error:
        return NotTaken("file-unreadable", f"its log cannot be read: {error.strerror}")
    if refusal := _explain_unknown(config, common):
        return refusal
    hints = Settings(gpu_type=None if config.gpu_type else common.gpu_type)
    description = describe_log(log, samples, common.workloads, hints, beside)
    job = _job(log, description, samples, config, common)
    if isinstance(job, NotTaken):
        return job
    state = _state(samples, log, job_of(log.name) or config.job or "", changed, common)
    if isinstance(state, NotTaken):
        return state
    if not _can_name_folder(job.experiment_name):
        return NotTaken("name-unusable", f"{job.experiment_name!r} cannot be a folder's name")
    record = _record(log, job, config, changed, common)
    return FoundRun(
        record=record,
        state=state,
        log=log,
        batch_log=next(iter(logs_beside(log)[1:]), None),
        image_file=config.image_file,
    )


def _can_name_folder(name: str) -> bool:
    """Return True if a foreign name can be a part of the names of the run's folders and logs."""
    return name not in ("", ".", "..") and len(os.fsencode(name)) <= _LONGEST_NAME


def _explain_unknown(config: LogSettings, common: Common) -> NotTaken | None:
    """Why llmb does not know what the file of the run names."""
    description = settings_beside(config, common.workloads)
    if config.workload is not None and not description.workload:
        return NotTaken("workload-not-offered", f"no plugin offers {config.workload}")
    if config.size is not None and description.workload and not description.model_size:
        return NotTaken("size-unknown", f"{description.workload} has no size {config.size}")
    if description.gpu_type is not None and description.gpu_type not in common.types:
        return NotTaken("gpu-type-unknown", f"its GPU type {description.gpu_type} is not known")
    return None


def _job(
    log: Path, description: Settings, samples: Samples, config: LogSettings, common: Common
) -> Job | NotTaken:
    """Return the complete job.

    A run with an unknown number is not taken, as llmb never guesses one.
    """
    workload = common.workloads.get(description.workload)
    if workload is None:
        return NotTaken("workload-not-offered", f"no plugin offers the workload of {_name_of(log)}")
    if not workload.is_training:
        return NotTaken(
            "not-training",
            f"{workload.key} trains no model, and llmb reads its results in another form",
        )
    unknown = [*missing(description, workload)]
    unknown += [name for name in ("tp", "pp", "cp", "mbs") if getattr(description, name) is None]
    if unknown:
        names = ", ".join(unknown)
        return NotTaken(
            "settings-unknown",
            f"unknown: {names}; llmb-run parse {shlex.quote(str(log))} shows what it measured",
        )
    assert description.gpu_type is not None
    training = _training(description, workload)
    if training is None:
        return NotTaken(
            "settings-conflict", "its batch and parallelism do not divide its number of GPUs"
        )
    size = workload.sizes[description.model_size]
    per_node = (
        config.gpus_per_node
        or common.gpus_per_node
        or common.types[description.gpu_type].gpus_per_node
    )
    last = samples.max_iteration if samples.last is None else samples.last
    return Job(
        workload=workload.key,
        model_size=description.model_size,
        dtype=description.dtype,
        gpu_type=description.gpu_type,
        scale=description.scale,
        repeat=1,
        profile=description.profile or bool(profiled_beside(log, config)),
        env=without_secrets(config.env),
        max_steps=_USUAL_STEPS if last is None else last + 1,
        nodes=math.ceil(description.scale / per_node),
        gpus_per_node=per_node,
        time_limit=60 * (size.time_limit_minutes or workload.time_limit_minutes),
        image=config.image,
        experiment_name=_name_of(log),
        training=training,
        switches=Switches(
            nccl_trace=description.nccl_trace,
            stragglers=description.stragglers,
            save_checkpoint=description.saves or None,
            fp8="current" if description.fp8 == "current" else None,
        ),
        framework=description.framework or NEMO,
        release=description.release if description.framework == BRIDGE else None,
        dotted=without_secrets(config.dotted),
    )


def _training(description: Settings, workload: Workload) -> Training | None:
    """The numbers of its training. None if they do not divide."""
    tp, pp, cp, mbs, gbs = (
        getattr(description, name) or 1 for name in ("tp", "pp", "cp", "mbs", "gbs")
    )
    gpus, model = description.scale, model_of(description, workload)
    dp, remainder = divmod(gpus, tp * pp * cp)
    if remainder or not dp or gbs % (mbs * dp) or model is None:
        return None
    return Training(
        model=model,
        tp=tp,
        pp=pp,
        cp=cp,
        vp=description.vp,
        ep=description.ep or 1,
        dp=dp,
        mbs=mbs,
        gbs=gbs,
        ga=gbs // (mbs * dp),
        seq_length=description.seq_length or model.seq_length,
        num_layers=model.layers,
        learning_rate=workload.sizes[description.model_size].learning_rate,
    )


def _state(
    samples: Samples, log: Path, job: str, changed: float, common: Common
) -> JobState | NotTaken:
    """Return the end of the run by its log, else by the history of jobs."""
    if samples.is_complete and samples.last is not None:
        return JobState(state=COMPLETED, ended=changed)
    last_state = common.source.states.get(job) or end_in(log) or ""
    if (
        last_state in ACTIVE
        or last_state in WAITING
        or (last_state not in ENDS and common.now - changed < _MAY_RUN)
    ):
        return NotTaken("run-not-ended", "it may still be running: import again when it has ended")
    if last_state in ENDS and not (last_state == COMPLETED and not samples.steps):
        return JobState(state=last_state, ended=changed)
    return JobState(state=FAILED, ended=changed)


def _record(log: Path, job: Job, config: LogSettings, changed: float, common: Common) -> RunRecord:
    """The record, whose id follows from the original's place: another import finds it again."""
    number = job_of(log.name) or config.job
    stamped = _STAMPED.fullmatch(log.absolute().parent.parent.name)
    created = config.submitted or (float(stamped[2]) if stamped else changed)
    digest = hashlib.sha256(os.fsencode(log.resolve())).digest()
    source = common.source
    if config.launcher_release is None and config.window is None:
        config = replace(config, window=source.window)
    name = job.experiment_name
    timestamp = stamped[2] if stamped else number or own_timestamp(log)
    directory = common.root / job.workload / "experiments" / name / f"{name}_{timestamp}"
    return RunRecord(
        # 60 bits: with 28, two of 20,000 runs would have the same in every second import
        id=f"i{base64.b32encode(digest).decode().lower()[:12]}",
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
            program=Program(argv=(source.program,)),
            image=job.image,
            environment=job.env,
            workload=job.workload,
            gpu_type=job.gpu_type,
        ),
        script_name="",
        submitter=ProcessId.current(),
        scheduler_id=number,
        origin=Origin(
            tool=source.tool,
            folder=log.absolute().parent,
            release=config.launcher_release or source.release,
            window=config.window_of(job.max_steps),
        ),
    )


def own_timestamp(log: Path) -> str:
    """Return digits that follow from the place of ``log``, for a run that has no time or job."""
    return str(int.from_bytes(hashlib.sha256(os.fsencode(log.resolve())).digest()[:8], "big"))


def _name_of(log: Path) -> str:
    """Return the experiment's name by its folder or its log."""
    stamped = _STAMPED.fullmatch(log.absolute().parent.parent.name)
    if stamped and stamped[1] == log.parent.name:
        return log.parent.name
    name = experiment_of(log).replace("/", "_")  # suites of benchmarks name runs by folders
    return name if re.search(r"_(?:bf16|fp8)_\d+$", name) else re.sub(r"_\d{3,}$", "", name)
