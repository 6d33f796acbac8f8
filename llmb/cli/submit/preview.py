# SPDX-License-Identifier: Apache-2.0
"""The output of a dry run: each job with all its numbers and its script, and the totals."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmb.cli.context import Context, say
from llmb.cli.options import slurm_arg_in_words
from llmb.cli.output import print_json_list, print_runs
from llmb.cli.submit.cost import Chosen, estimate_data, estimates_of
from llmb.errors import LlmbError
from llmb.frameworks import torch_pretrain, wrappers
from llmb.planning.estimate import JobEstimate, describe, total
from llmb.planning.rules import NSYS, PROFILED
from llmb.runs.job import Job
from llmb.runs.launch import Launch
from llmb.submission.prepare import Prepared, launch_of, preview
from llmb.system.secrets import is_secret_name
from llmb.text.tables import Column, escape, shorten
from llmb.text.times import clock
from llmb.workload.bridge import BRIDGE, usual_image
from llmb.workload.spec import Workload
from llmb.workload.switches import given_switches

_VALUE_WIDTH = 60  # characters of a variable's value in a table; json, csv and md show all
# Columns that a narrow table omits: they follow from others, or are the workload's.
_FOLLOWING = ("dp", "ga", "nodes")
# Columns that are omitted where no job has a value.
_OPTIONAL = ("framework", "tp", "pp", "cp", "vp", "ep", "etp", "dp", "mbs", "gbs", "ga", "profile", "changed")
_EXPERTS = ("ep", "etp")  # 1 for a dense model
_OWN = "parameters"  # of a workload; in a table, those that are swept have columns with this before their names
# The contract of `--format json`; those of training are null where no model is trained.
FIELDS = (
    *("workload", "model_size", "dtype", "gpu_type", "scale", "repeat", "profile", "env"),
    *("tp", "pp", "cp", "vp", "ep", "etp", "dp", "mbs", "gbs", "ga", "seq_length", "num_layers"),
    *("max_steps", "nodes", "gpus_per_node", "time_limit", "image", "experiment_name"),
)


def job_data(job: Job) -> dict[str, Any]:
    """A job as ``--format json`` prints it but for script and switches: the time limit is HH:MM:SS.

    ``parameters`` only where its workload has any.
    """
    data = {name: getattr(job if hasattr(job, name) else job.training, name, None) for name in FIELDS}
    own = {_OWN: dict(job.parameters)} if job.parameters else {}
    return {**data, "env": dict(job.env), "time_limit": clock(job.time_limit), **own}


def show(context: Context, chosen: Chosen, fmt: str) -> None:
    """Print the jobs of a dry run."""
    items = chosen.items
    if fmt == "json":
        cluster, config = context.cluster, context.config
        estimates = estimates_of(context, [item.job for item in items])
        data = (
            _with_script(item, preview(item, cluster, config), one) for item, one in zip(items, estimates, strict=True)
        )
        print_json_list("jobs", data, {} if chosen.budget is None else {"budget": chosen.budget})
    else:
        jobs = [item.job for item in items]
        common = _common_env(jobs)
        swept = _swept(jobs) if fmt != "csv" else []
        own = [_changes(item, context.workloads[item.job.workload], swept) for item in items]
        shared = [word for word in own[0] if word and all(word in words for words in own)] if len(own) > 1 else []
        if fmt != "table":
            shared = []
        by_size = _env_by_size(jobs, common) if fmt == "table" else {}
        rows = []
        for job, words in zip(jobs, own, strict=True):
            known = {**common, **by_size.get((job.workload, job.model_size), {})}
            env = {name: value for name, value in job.env.items() if name not in known}
            left = [word for word in words if word and word not in shared]
            changed = " ".join(filter(None, [*left, _env_in_words(env, whole=fmt == "md")]))
            columns = {f"{_OWN}.{name}": job.parameters.get(name) for name in swept}
            shown = f"{job.framework} {job.release}" if job.framework == BRIDGE else None
            rows.append({**job_data(job), "framework": shown, **columns, "changed": changed})
        print_runs(_columns(fmt, rows, swept), rows, fmt, name="workload", below="changed")
        if shared:
            say(f"changed in every job: {' '.join(shared)}")
        if common and fmt != "csv":
            say(f"variables of {'every' if len(jobs) > 1 else 'the'} job: {_env_in_words(common, whole=fmt == 'md')}")
        for (workload, size), env in by_size.items():
            say(f"variables of every job of {workload} {size}: {_env_in_words(env)}")
    for text in changed_by_plugins(items):
        say(f"note: {text}")
    for text in dict.fromkeys(_missing(context, items)):
        say(f"note: {text}")
    if context.verbose and fmt != "json":
        _print_scripts(context, items)
    if fmt == "table":
        _totals(context, items)


def _print_scripts(context: Context, items: Sequence[Prepared]) -> None:
    """Print the script of each job, repeats once."""
    shown: dict[str, str] = {}
    for item in items:
        shown.setdefault(item.job.experiment_name, preview(item, context.cluster, context.config) or "none")
    for name, script in shown.items():
        say(f"script of {name}:\n{script.rstrip()}\n")


def _with_script(item: Prepared, script: str | None, cost: JobEstimate) -> dict[str, Any]:
    """A job's data with its script and its estimate, and its switches, its framework and what plugins change."""
    job = item.job
    more: dict[str, Any] = {"switches": given_switches(job.switches)}
    if job.framework == BRIDGE:
        more |= {"framework": job.framework, "release": job.release, "rows_of": job.rows_of}
        more["dotted"] = dict(job.dotted)
    more["changed_by"] = item.launch.changed_by if item.launch is not None else {}
    more = {name: value for name, value in more.items() if value}
    return {**job_data(job), "script": script, "estimate": estimate_data(cost), **more}


def changed_by_plugins(items: Sequence[Prepared]) -> Iterator[str]:
    """What plugins that cluster_config.yaml names change in the jobs' launches."""
    found: dict[tuple[str, str], int] = {}
    for item in items:
        for source, fields in item.launch.changed_by.items() if item.launch is not None else ():
            for name in fields:
                found[source, name] = found.get((source, name), 0) + 1
    for source in dict.fromkeys(source for source, _ in found):
        own = {name: count for (one, name), count in found.items() if one == source}
        some = [name if count == len(items) else f"{name} (in {count})" for name, count in own.items()]
        yield f"plugin {source} changes {', '.join(some)} of {'every' if len(items) > 1 else 'the'} job"


def _changes(item: Prepared, workload: Workload, swept: Sequence[str]) -> list[str]:
    """What differs from the workload's own job.

    Its own parameters without those ``swept``, the words after the numbers in the job's name except the profile's,
    overrides that are not in the name, and the options of sbatch from the command line and the list.
    """
    job, launch = item.job, item.launch
    own = {name: value for name, value in job.parameters.items() if name not in swept}
    changes = [f"{name}={value}" for name, value in own.items() if value != workload.parameters[name].default]
    numbers = f"_gbs{job.training.gbs}" if job.training is not None else f"_gpus{job.scale}"
    numbers += "".join(f"_{name}{value}" for name, value in job.parameters.items())
    numbers += f"_{BRIDGE}{job.release}" if job.framework == BRIDGE else ""
    words = job.experiment_name.rpartition(numbers)[2].split("_")
    changes += [word for word in words if not (job.profile and word in (NSYS, PROFILED))]
    if job.switches.vboost is not None and job.switches.vboost == job.vboost:
        changes.append("vboost" if job.vboost else "no-vboost")
    if job.image is not None and job.image != usual_image(workload, job.release):
        changes.append(f"image={escape(job.image)}")
    changes += [f"{name}={value}" for name, value in job.dotted.items()]
    changes += [f"mount={escape(mount)}" for mount in job.switches.mounts or ()]
    if job.switches.container_writable is not None:
        changes.append("writable" if job.switches.container_writable else "readonly")
    return changes + [slurm_arg_in_words(name, value) for name, value in (launch.slurm_args if launch else {}).items()]


def _swept(jobs: Sequence[Job]) -> list[str]:
    """The names of the workloads' own parameters in which jobs of one workload differ."""
    found: dict[tuple[str, str], set[str]] = {}
    for job in jobs:
        for name, value in job.parameters.items():
            found.setdefault((job.workload, name), set()).add(value)
    return list(dict.fromkeys(name for (_, name), values in found.items() if len(values) > 1))


def _common_env(jobs: Sequence[Job]) -> dict[str, str]:
    """The variables that have the same value in all jobs."""
    first = jobs[0].env if jobs else {}
    return {name: value for name, value in first.items() if all(job.env.get(name) == value for job in jobs)}


def _env_by_size(jobs: Sequence[Job], common: Mapping[str, str]) -> dict[tuple[str, str], dict[str, str]]:
    """The other variables that several jobs of one workload and size have in common, by that size."""
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.workload, job.model_size), []).append(job)
    shared = {key: _common_env(group) for key, group in groups.items() if len(group) > 1}
    own = {key: {name: env[name] for name in env if name not in common} for key, env in shared.items()}
    return {key: env for key, env in own.items() if env}


def _env_in_words(env: Mapping[str, str], *, whole: bool = False) -> str:
    """``A=1 B=2``, quoted for a shell; the value of a secret is hidden."""
    shown = {name: escape(value) if whole else shorten(escape(value), _VALUE_WIDTH) for name, value in env.items()}
    quoted = {name: shlex.quote(value) if value else "" for name, value in shown.items()}
    return " ".join(f"{name}={'***' if is_secret_name(name) else value}" for name, value in quoted.items())


def _columns(fmt: str, rows: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> list[Column]:
    """The columns; a table omits those of _OPTIONAL that are empty, and has one for each parameter ``swept``."""
    if fmt == "csv":
        own = [_OWN] if any(_OWN in row for row in rows) else []
        own += ["framework"] if any(row["framework"] for row in rows) else []
        return [Column(key=name, heading=name) for name in (*FIELDS, *own)]
    left = [Column(key="workload", heading="Workload"), Column(key="model_size", heading="Size")]
    left += [Column(key="dtype", heading="Dtype"), Column(key="gpu_type", heading="GPU")]
    left += [Column(key="framework", heading="Framework")]
    numbers = ("scale", "repeat", "tp", "pp", "cp", "vp", *_EXPERTS, "dp", "mbs", "gbs", "ga", "nodes")
    parameters = [Column(key=f"{_OWN}.{name}", heading=name, right=True) for name in swept]
    right = [
        Column(
            key=name,
            heading=name.capitalize() if len(name) > 3 else name.upper(),
            show=(lambda value: str(value) if value > 1 else "") if name in _EXPERTS else str,
            right=True,
            optional=name in _FOLLOWING,
        )
        for name in numbers
    ]
    more = [
        Column(key="time_limit", heading="Limit", right=True, optional=True),
        Column(key="profile", heading="Profile", show=lambda given: "yes" if given else "", optional=True),
    ]
    more += [Column(key="changed", heading="Changed")]
    return [
        column
        for column in (*left, *parameters, *right, *more)
        if column.key not in _OPTIONAL or any(map(column.cell, rows))
    ]


def _missing(context: Context, items: Sequence[Prepared]) -> Iterator[str]:
    """What a submission would miss, as far as this machine shows: images, environments, files, memory, secrets."""
    from llmb.clusters import checks
    from llmb.submission.prepare import faults_seen

    config = context.config
    launches: list[Launch] = []
    for item in items:
        try:
            launches.append(launch_of(item, config))
        except LlmbError as error:
            yield f"a submission would fail: {error.message}" + (f" ({error.hint})" if error.hint else "")
    seen = faults_seen(launches, context.cluster, config)
    for fault in (*seen, *checks.secrets_at(context.cluster, launches, os.environ)):
        yield f"a submission would fail: {fault}" + (f" ({fault.hint})" if fault.hint else "")


def _totals(context: Context, items: Sequence[Prepared]) -> None:
    """Print the totals."""
    if not items:
        say("nothing is left to submit (--dry-run)")
        return
    jobs = [item.job for item in items]
    unit = "CPU" if all(job.gpu_type == "cpu" for job in jobs) else "GPU"
    found = describe(total(jobs, estimates_of(context, jobs)), unit)
    say(f"{len(jobs)} job{'s' if len(jobs) != 1 else ''}, {found}")
    if disk := sum(item.launch.disk_gb for item in items if item.launch is not None):
        say(f"{disk / 1000:,.1f} TB of checkpoints" if disk >= 1000 else f"{disk:,.0f} GB of checkpoints")
    for text in dict.fromkeys(filter(None, map(_profile_of, items))):
        say(text)
    say("nothing was submitted (--dry-run)")


def _profile_of(item: Prepared) -> str | None:
    """How a job is profiled, and into which folder; None for other jobs and for a plugin's own program."""
    switches, launch = item.job.switches, item.launch
    if not item.job.profile or launch is None:
        return None
    steps = f"steps {switches.profile_start}-{switches.profile_stop}"
    if any(wrapper.name == wrappers.NSIGHT for wrapper in launch.wrappers):
        ranks, folder = switches.profile_ranks, wrappers.PROFILE_FOLDER
        return f"profiled by Nsight Systems: {steps}, ranks {ranks}, into <name>/{folder}/"
    if launch.program.module == torch_pretrain.PROGRAM:
        return f"profiled by torch: {steps}, every rank, into <name>/{torch_pretrain.PROFILE_FOLDER}/"
    return None
