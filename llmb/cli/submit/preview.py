# SPDX-License-Identifier: Apache-2.0
"""The output of a dry run: each job with all its numbers and its script, and the totals."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llmb.builtin import wrappers
from llmb.builtin.torch import torch_names, torch_pretrain
from llmb.cli.context import CliContext, say
from llmb.cli.estimates import estimates_of
from llmb.cli.options import slurm_arg_in_words
from llmb.cli.output import print_json_list, print_runs
from llmb.cli.submit.cost import estimate_data
from llmb.contract.gpus import processor
from llmb.contract.job import Job
from llmb.contract.launch import Launch
from llmb.contract.record import Session
from llmb.contract.sbatch import NODE_OPTIONS
from llmb.contract.spec import NEMO, Workload
from llmb.contract.switches import given_switches
from llmb.core import console, typed
from llmb.core.grouping import grouped
from llmb.core.secrets import is_secret_name
from llmb.core.tables import Column, escape, shorten
from llmb.core.times import clock
from llmb.errors import LlmbError
from llmb.measure.columns import SCHEMA_VERSION
from llmb.plan.estimate import Alike, JobEstimate, describe, total
from llmb.plan.framework import image_of
from llmb.plan.repeats import is_repeat
from llmb.plan.rules import NSYS, PROFILED
from llmb.run.prepare import Prepared, launch_of, preview

_VALUE_WIDTH = 60  # characters of a variable's value in a table; json, csv and md show all
# Columns that a narrow table omits: they follow from others, or are the workload's.
_FOLLOWING = ("dp", "ga", "nodes")
# Columns that are omitted where no job has a value.
_SPLITS = ("tp", "pp", "cp", "vp", "ep", "etp", "dp", "mbs", "gbs", "ga")
_OPTIONAL = ("framework", *_SPLITS, "profile", "changed")
_EXPERTS = ("ep", "etp")  # 1 for a dense model
# of a workload; in a table, those that are swept have columns with this before their names
_OWN = "parameters"
# Of the session; the time and the command line are those of the submission.
SESSION_FIELDS = ("id", "name", "list_sha256")
# The contract of `--format json`; those of training are null where no model is trained.
FIELDS = (
    *("workload", "model_size", "dtype", "gpu_type", "scale", "repeat", "profile", "env"),
    *(*_SPLITS, "seq_length", "num_layers", "max_steps", "nodes", "gpus_per_node", "time_limit"),
    *("image", "experiment_name"),
)

# of a job, in a table
_SHOWN = (
    *("workload", "model_size", "dtype", "gpu_type", "scale", "repeat", *_SPLITS),
    *("nodes", "time_limit", "profile"),
)


def job_data(job: Job, fields: Sequence[str] = FIELDS) -> dict[str, Any]:
    """A job as ``--format json`` prints it, without script and switches.

    The time limit is HH:MM:SS. Only workloads with parameters have ``parameters``.
    """
    data = {
        name: getattr(job if hasattr(Job, name) else job.training, name, None) for name in fields
    }
    if "env" in data:
        data["env"] = dict(job.env)
    data["time_limit"] = clock(job.time_limit)
    return {**data, _OWN: dict(job.parameters)} if job.parameters else data


def show(
    context: CliContext,
    items: Sequence[Prepared],
    budget: Mapping[str, Any] | None,
    fmt: str,
    session: Session,
    past: Mapping[Alike, float],
) -> None:
    """Print the jobs of a dry run; JSON has the ``session`` and the ``budget`` too.

    ``past``: the seconds of past runs.
    """
    if fmt == "json":
        estimates = estimates_of(context, [item.job for item in items], past)
        data = _jobs_with_scripts(context, items, estimates)
        extra: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "session": {name: getattr(session, name) for name in SESSION_FIELDS},
        }
        print_json_list("jobs", data, extra if budget is None else {**extra, "budget": budget})
    else:
        _print_jobs(context, items, fmt)
    for text in changed_by_plugins(items):
        say(f"note: {text}")
    for text in dict.fromkeys(_missing(context, items)):
        say(f"note: {text}")
    if context.verbose and fmt != "json":
        _print_scripts(context, items)
    if fmt == "table":
        _totals(context, items, past)


def _jobs_with_scripts(
    context: CliContext, items: Sequence[Prepared], estimates: Sequence[JobEstimate]
) -> Iterator[dict[str, Any]]:
    """Yield the data of each job. Repeats that share a launch also share all values but one."""
    before: Prepared | None = None
    data: dict[str, Any] = {}
    for item, estimate in zip(items, estimates, strict=True):
        if before is None or not _are_repeats(item, before):
            script = preview(item, context.cluster, context.config)
            workload = context.workloads[item.job.workload]
            data = _with_script(item, workload, script, estimate)
        yield {**data, "repeat": item.job.repeat}
        before = item


def _are_repeats(item: Prepared, other: Prepared) -> bool:
    is_shared = item.launch is other.launch and item.pair == other.pair
    return is_shared and is_repeat(item.job, other.job)


def _print_jobs(context: CliContext, items: Sequence[Prepared], fmt: str) -> None:
    """Print a row for each job; people get one for all repeats of a job.

    A table is followed by what jobs have in common.
    """
    jobs = [item.job for item in items]
    common_env = _common_env(jobs)
    swept = _swept(jobs) if fmt != "csv" else []
    changes = [_changes(item, context.workloads[item.job.workload], swept) for item in items]
    shared: list[str] = []
    if fmt == "table" and len(changes) > 1:
        shared = [word for word in changes[0] if word and all(word in words for words in changes)]
    by_size = _env_by_size(jobs, common_env) if fmt == "table" else {}
    # A table of 100,000 jobs has only what it shows.
    fields = FIELDS if fmt == "csv" else _SHOWN
    rows = []
    for item, words in zip(items, changes, strict=True):
        job = item.job
        listed_below = {**common_env, **by_size.get((job.workload, job.model_size), {})}
        env = {name: value for name, value in job.env.items() if name not in listed_below}
        distinct = [word for word in words if word and word not in shared]
        changed = " ".join(filter(None, [*distinct, _env_in_words(env, whole=fmt == "md")]))
        columns = {f"{_OWN}.{name}": job.parameters.get(name) for name in swept}
        trained_by = _framework(item, context.workloads[job.workload])
        framework = " ".join(filter(None, (trained_by, job.release))) or None
        cells = {"framework": framework, **columns, "changed": changed}
        rows.append({**job_data(job, fields), **cells})
    if fmt != "csv":
        rows = _repeats_as_one(rows)
    print_runs(_columns(fmt, rows, swept), rows, fmt, name="workload", below="changed")
    if shared:
        say(f"changed in every job: {' '.join(shared)}")
    if common_env and fmt != "csv":
        say(
            f"variables of {'every' if len(jobs) > 1 else 'the'} job:"
            f" {_env_in_words(common_env, whole=fmt == 'md')}"
        )
    for (workload, size), env in by_size.items():
        say(f"variables of every job of {workload} {size}: {_env_in_words(env)}")


def _framework(item: Prepared, workload: Workload) -> str | None:
    """Return the framework of a job, None if it trains no model or another program runs it.

    That is llmb's torch program, or that of its plugin for a size without a recipe of NeMo.
    """
    has_recipe = workload.sizes[item.job.model_size].nemo is not None
    if item.job.framework == NEMO and not has_recipe:
        return None
    is_torch = item.launch is not None and torch_pretrain.name_of(item.launch.program)
    is_other = is_torch and item.job.framework != torch_names.NAME
    return None if item.job.training is None or is_other else item.job.framework


def _repeats_as_one(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for rows that differ in ``repeat`` alone, which becomes ``1-3``."""
    merged: list[dict[str, Any]] = []
    for row in rows:
        last = merged[-1] if merged else {}
        is_next = row["repeat"] == last.get("last", 0) + 1
        marks = dict.fromkeys(("repeat", "first", "last"))
        if is_next and {**last, **marks} == {**row, **marks}:
            last |= {"last": row["repeat"], "repeat": f"{last['first']}-{row['repeat']}"}
        else:
            merged.append({**row, "first": row["repeat"], "last": row["repeat"]})
    return merged


def _print_scripts(context: CliContext, items: Sequence[Prepared]) -> None:
    """Print the script of each job, repeats once."""
    shown: dict[str, str] = {}
    for item in items:
        shown.setdefault(
            item.job.experiment_name, preview(item, context.cluster, context.config) or "none"
        )
    for name, script in shown.items():
        console.echo(f"script of {name}:\n{script.rstrip()}\n", err=True)


def _with_script(
    item: Prepared, workload: Workload, script: str | None, cost: JobEstimate
) -> dict[str, Any]:
    """A job's data with script, estimate, switches, framework and changes of plugins."""
    job = item.job
    extra: dict[str, Any] = {"switches": given_switches(job.switches)}
    extra["framework"] = _framework(item, workload)
    if job.release is not None:
        extra |= {"release": job.release, "rows_of": job.rows_of, "dotted": dict(job.dotted)}
    extra["changed_by"] = item.launch.changed_by if item.launch is not None else {}
    extra["pair"] = None if item.pair is None else typed.to_data(item.pair)
    extra = {name: value for name, value in extra.items() if value}
    return {**job_data(job), "script": script, "estimate": estimate_data(cost), **extra}


def changed_by_plugins(items: Sequence[Prepared]) -> Iterator[str]:
    """Describe the changes to launches by plugins that cluster_config.yaml names."""
    counts: dict[tuple[str, str], int] = {}
    for item in items:
        for source, fields in item.launch.changed_by.items() if item.launch is not None else ():
            for name in fields:
                counts[source, name] = counts.get((source, name), 0) + 1
    for source in dict.fromkeys(source for source, _ in counts):
        fields_changed = {
            name: count for (plugin, name), count in counts.items() if plugin == source
        }
        texts = [
            name if count == len(items) else f"{name} (in {count})"
            for name, count in fields_changed.items()
        ]
        yield (
            f"plugin {source} changes {', '.join(texts)} of"
            f" {'every' if len(items) > 1 else 'the'} job"
        )


def _changes(item: Prepared, workload: Workload, swept: Sequence[str]) -> list[str]:
    """The differences from the workload's usual job.

    These are its parameters without ``swept`` ones, the words after the numbers in the job's name
    except the profile's, overrides that are not in the name, and the options of sbatch.
    """
    job, launch = item.job, item.launch
    parameters = {name: value for name, value in job.parameters.items() if name not in swept}
    changes = [
        f"{name}={value}"
        for name, value in parameters.items()
        if value != workload.parameters[name].default
    ]
    numbers = f"_gbs{job.training.gbs}" if job.training is not None else f"_gpus{job.scale}"
    numbers += "".join(f"_{name}{value}" for name, value in job.parameters.items())
    numbers += f"_{job.framework}{job.release}" if job.release is not None else ""
    words = job.experiment_name.rpartition(numbers)[2].split("_")
    changes += [word for word in words if not (job.profile and word in (NSYS, PROFILED))]
    if job.switches.vboost is not None and job.switches.vboost == job.vboost:
        changes.append("vboost" if job.vboost else "no-vboost")
    if job.switches.telemetry is not None:
        changes.append("telemetry" if job.switches.telemetry else "no-telemetry")
    if job.image is not None and job.image != image_of(workload, job.framework, job.release):
        changes.append(f"image={escape(job.image)}")
    changes += [f"{name}={value}" for name, value in job.dotted.items()]
    changes += [f"mount={escape(mount)}" for mount in job.switches.mounts or ()]
    if job.switches.container_writable is not None:
        changes.append("writable" if job.switches.container_writable else "readonly")
    return changes + [
        f"{name} names no node"
        if name in NODE_OPTIONS and value is False
        else slurm_arg_in_words(name, value)
        for name, value in (launch.slurm_args if launch else {}).items()
    ]


def _swept(jobs: Sequence[Job]) -> list[str]:
    """The names of the workloads' own parameters in which jobs of one workload differ."""
    values_of = grouped(
        ((job.workload, name), value) for job in jobs for name, value in job.parameters.items()
    )
    differing = (name for (_, name), values in values_of.items() if len(set(values)) > 1)
    return list(dict.fromkeys(differing))


def _common_env(jobs: Sequence[Job]) -> dict[str, str]:
    """The variables that have the same value in all jobs."""
    first = jobs[0].env if jobs else {}
    return {
        name: value
        for name, value in first.items()
        if all(job.env.get(name) == value for job in jobs)
    }


def _env_by_size(
    jobs: Sequence[Job], common: Mapping[str, str]
) -> dict[tuple[str, str], dict[str, str]]:
    """Other variables that several jobs of one workload and size share, by workload and size."""
    groups = grouped(((job.workload, job.model_size), job) for job in jobs)
    shared = {key: _common_env(group) for key, group in groups.items() if len(group) > 1}
    distinct = {
        key: {name: env[name] for name in env if name not in common} for key, env in shared.items()
    }
    return {key: env for key, env in distinct.items() if env}


def _env_in_words(env: Mapping[str, str], *, whole: bool = False) -> str:
    """``A=1 B=2``, quoted for a shell. The value of a secret is hidden."""
    shown = {
        name: escape(value) if whole else shorten(escape(value), _VALUE_WIDTH)
        for name, value in env.items()
    }
    quoted = {name: shlex.quote(value) if value else "" for name, value in shown.items()}
    return " ".join(
        f"{name}={'***' if is_secret_name(name) else value}" for name, value in quoted.items()
    )


def _columns(fmt: str, rows: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> list[Column]:
    """Return the columns, also of ``swept`` parameters. A table omits empty ones of _OPTIONAL."""
    if fmt == "csv":
        optional = [_OWN] if any(_OWN in row for row in rows) else []
        optional += ["framework"] if any(row["framework"] for row in rows) else []
        return [Column(key=name, heading=name) for name in (*FIELDS, *optional)]
    identity = [
        Column(key="workload", heading="Workload"),
        Column(key="model_size", heading="Size"),
    ]
    identity += [Column(key="dtype", heading="Dtype"), Column(key="gpu_type", heading="GPU")]
    # a column that distinguishes no rows is optional
    framework, profile = (len({row[key] for row in rows}) == 1 for key in ("framework", "profile"))
    identity += [Column(key="framework", heading="Framework", optional=framework)]
    numbers = ("scale", "repeat", *_SPLITS, "nodes")
    parameters = [Column(key=f"{_OWN}.{name}", heading=name, right=True) for name in swept]
    counts = [
        Column(
            key=name,
            heading=name.capitalize() if len(name) > 3 else name.upper(),
            show=(lambda value: str(value) if value > 1 else "") if name in _EXPERTS else str,
            right=True,
            optional=name in _FOLLOWING,
        )
        for name in numbers
    ]
    details = [
        Column(key="time_limit", heading="Limit", right=True, optional=True),
        Column(
            key="profile",
            heading="Profile",
            show=lambda profile: "yes" if profile else "",
            optional=profile,
        ),
    ]
    details += [Column(key="changed", heading="Changed")]
    return [
        column
        for column in (*identity, *parameters, *counts, *details)
        if column.key not in _OPTIONAL or any(map(column.cell, rows))
    ]


def _missing(context: CliContext, items: Sequence[Prepared]) -> Iterator[str]:
    """Describe images, environments, files, memory and secrets that a submission would miss."""
    from llmb.kit import checks
    from llmb.run.prepare import faults_seen

    config = context.config
    launches: list[Launch] = []
    for item in items:
        try:
            launches.append(launch_of(item, config))
        except LlmbError as error:
            yield f"a submission would fail: {error.message}" + (
                f" ({error.hint})" if error.hint else ""
            )
    faults = faults_seen(launches, context.cluster, config)
    faults = [*faults, *checks.secrets_at(context.cluster, launches, os.environ)]
    hints = grouped((str(fault), fault.hint or "") for fault in faults)
    for fault_text, of_fault in hints.items():
        hint = "; ".join(_add_once([*filter(None, dict.fromkeys(of_fault))]))
        yield f"a submission would fail: {fault_text}" + (f" ({hint})" if hint else "")


_ADD = re.compile(r"(llmb-install add) (\S+)(.*)")


def _add_once(hints: Sequence[str]) -> list[str]:
    """Return ``hints`` with one command for all workloads to install the same way."""
    matches = [match for hint in hints if (match := _ADD.fullmatch(hint))]
    if len(matches) < len(hints) or len({match[3] for match in matches}) != 1:
        return [*hints]
    names = " ".join(match[2] for match in matches)
    return [f"{matches[0][1]} {names}{matches[0][3]}"]


def _totals(context: CliContext, items: Sequence[Prepared], past: Mapping[Alike, float]) -> None:
    """Print the totals."""
    if not items:
        say("nothing is left to submit (--dry-run)")
        return
    jobs = [item.job for item in items]
    unit = processor(job.gpu_type for job in jobs)
    totals = describe(total(estimates_of(context, jobs, past)), unit)
    say(f"{len(jobs)} job{'s' if len(jobs) != 1 else ''}, {totals}")
    if disk := sum(item.launch.disk_gb for item in items if item.launch is not None):
        say(
            f"{disk / 1000:,.1f} TB of checkpoints"
            if disk >= 1000
            else f"{disk:,.0f} GB of checkpoints"
        )
    for text in dict.fromkeys(filter(None, map(_profile_of, items))):
        say(text)
    say("nothing was submitted (--dry-run)")


def _profile_of(item: Prepared) -> str | None:
    """Describe the profile of a job and its folder. None without one, or for a plugin's program."""
    switches, launch = item.job.switches, item.launch
    if not item.job.profile or launch is None:
        return None
    steps = f"steps {switches.profile_start}-{switches.profile_stop}"
    if any(wrapper.name == wrappers.NSIGHT for wrapper in launch.wrappers):
        ranks, folder = switches.profile_ranks, wrappers.PROFILE_FOLDER
        return f"profiled by Nsight Systems: {steps}, ranks {ranks}, into <name>/{folder}/"
    if torch_pretrain.name_of(launch.program):
        return (
            f"profiled by torch: {steps}, every rank, into <name>/{torch_pretrain.PROFILE_FOLDER}/"
        )
    return None
