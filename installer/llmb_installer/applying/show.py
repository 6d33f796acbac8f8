# SPDX-License-Identifier: Apache-2.0
"""Texts and data about a plan, its outcome and the finished steps."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmb.contract.gpus import CPU
from llmb.core import tables, yamlfile
from llmb.core.fold import fold
from llmb.core.units import bytes_in_words
from llmb.errors import Fault
from llmb.plan.locate import CONFIG_FILE
from llmb.plan.read_config import read_config
from llmb_installer import fits
from llmb_installer.applying.apply import InstallOutcome
from llmb_installer.cluster_types import all_types
from llmb_installer.planning.costs import Costs
from llmb_installer.planning.plan import SMOKE, InstallPlan
from llmb_installer.planning.status import InstallStatus
from llmb_installer.record import InstallRecord, format_option
from llmb_installer.step import InstallStep
from llmb_installer.steps.kinds import find_kind, is_there
from llmb_installer.venv import repair
from llmb_installer.venv.venv_step import VenvStep

_NO_VERDICTS = (
    "no figures are published for CPUs: for a verdict, compare runs with a baseline of your own"
)
_NARROW = 50  # characters, below which the table does not have all columns
COLUMNS = (
    tables.Column(key="step"),
    tables.Column(key="state"),
    tables.Column(key="fetch_bytes", heading="fetch", show=bytes_in_words, right=True),
    tables.Column(key="disk_bytes", heading="disk", show=bytes_in_words, right=True),
    tables.Column(key="what"),
)


def format_plan(plan: InstallPlan, costs: Costs) -> str:
    """The plan: each step with its cost, the configuration, and the free space."""
    site = plan.intent.site
    head = (
        f"Install directory {plan.install} (cluster type {site.cluster_type}, GPU type"
        f" {site.gpu_type})"
    )
    rows = [_row(step, plan, costs) for step in plan.intent.steps]
    change = "todo" if plan.config.changed else "done"
    rows.append({"step": "config", "state": change, "what": CONFIG_FILE})
    lines = [f"For {_workloads(plan.intent.workloads)}.", *describe_places(plan)]
    notes = (*plan.config.kept, *_replaced(plan), *costs.doubts, *_torch_notes(plan))
    lines += [f"note: {sentence}" for sentence in notes]
    sentences = (
        fold(line, tables.output_width(), "  ") for line in (*lines, *_costs_text(plan, costs))
    )
    is_narrow = tables.output_width() < _NARROW  # the sum for the disk is below the table
    columns = [column for column in COLUMNS if column.key != "disk_bytes" or not is_narrow]
    table = tables.render(columns, rows, "table").rstrip("\n")
    return "\n".join([fold(head, tables.output_width(), "  "), table, *sentences])


def _replaced(plan: InstallPlan) -> list[str]:
    """Notes on environments that running jobs may use: a build replaces them."""
    existing = [step for step in plan.todo if isinstance(step, VenvStep) and step.folder.exists()]
    return [
        (
            f"{step.key}: only its damaged packages are reinstalled; running jobs are not affected"
            if repair.is_likely(step, plan.install)
            else f"{step.key} is replaced when it is built: wait for the jobs that use it to finish"
        )
        for step in existing
    ]


def find_workloads_without_torch(plan: InstallPlan) -> tuple[str, ...]:
    """Return the workloads whose jobs need an image or environment that the plan lacks."""
    config = read_config(
        yamlfile.Document(name=CONFIG_FILE, data=plan.config.data), cluster_types=all_types
    )
    return fits.find_workloads_without_torch(config, plan.intent.steps)


def _torch_notes(plan: InstallPlan) -> list[str]:
    keys = find_workloads_without_torch(plan)
    return [fits.explain_torch(keys)] if keys else []


def _costs_text(plan: InstallPlan, costs: Costs) -> list[str]:
    if not plan.todo:
        return []
    estimates = [estimate for estimate in costs.estimates.values() if estimate.fetch is not None]
    rough = "about " if any(estimate.rough for estimate in estimates) else ""
    unknown_count = len(plan.todo) - len(estimates)
    parts = [f"{rough}{bytes_in_words(costs.fetch)}"] if costs.fetch or not unknown_count else []
    parts += (
        [f"an unknown amount for {unknown_count} step{'s' * (unknown_count != 1)}"]
        if unknown_count
        else []
    )
    lines = [f"To fetch: {' and '.join(parts)}."]
    for disk in costs.disks:
        needed = f"{rough}{bytes_in_words(disk.needed)} needed, " if disk.needed else ""
        lines.append(f"On the disk of {disk.folder}: {needed}{bytes_in_words(disk.free)} free.")
    if any(
        isinstance(step, VenvStep) and step.tool == "uv" and step.wheelhouse is None
        for step in plan.todo
    ):
        lines.append("uv also keeps what it fetches in its cache ('uv cache dir' shows where).")
    return lines


def _row(step: InstallStep, plan: InstallPlan, costs: Costs) -> dict[str, Any]:
    estimate = costs.estimates.get(step.key)
    return {
        "step": step.key,
        "state": "todo" if step in plan.todo else "done",
        "fetch_bytes": estimate.fetch if estimate is not None else None,
        "disk_bytes": estimate.disk if estimate is not None else None,
        "rough": estimate.rough if estimate is not None else False,
        "what": step.title,
        "workloads": list(step.workloads),
        "after": list(step.after),
        "digest": step.digest,
    }


def _head(plan: InstallPlan) -> dict[str, Any]:
    site = plan.intent.site
    return {
        "install": str(plan.install),
        "cluster_type": site.cluster_type,
        "gpu_type": site.gpu_type,
    }


def plan_data(plan: InstallPlan, costs: Costs) -> dict[str, Any]:
    return {
        **_head(plan),
        "workloads": list(plan.intent.workloads),
        "steps": [_row(step, plan, costs) for step in plan.intent.steps],
        "config": {
            "file": CONFIG_FILE,
            "state": "todo" if plan.config.changed else "done",
            "kept": [*plan.config.kept],
        },
        "disks": [
            {"folder": str(disk.folder), "needed_bytes": disk.needed, "free_bytes": disk.free}
            for disk in costs.disks
        ],
        "faults": [fault_data(fault) for fault in costs.faults],
        "where": describe_places(plan),
        "notes": [*_replaced(plan), *costs.doubts, *_torch_notes(plan)],
    }


def fault_data(fault: Fault) -> dict[str, Any]:
    value = fault.value
    if isinstance(value, (list, tuple)):
        value = [str(item) for item in value]
    elif not isinstance(value, (str, int, float, bool, type(None))):
        value = str(value)
    texts = {"step": fault.place, "message": fault.message, "hint": fault.hint}
    return {**texts, "code": fault.code, "key": fault.key, "value": value}


def _workloads(keys: tuple[str, ...]) -> str:
    return (
        f"{len(keys)} workload{'s' * (len(keys) != 1)}: {', '.join(keys)}"
        if keys
        else "no workload"
    )


def summarize(
    install: Path,
    record: InstallRecord,
    ready: tuple[str, ...],
    imageless: tuple[str, ...] = (),
    smoke: tuple[str, ...] = (),
    *,
    gpu_type: str = "",
    judged: tuple[str, ...] = (),
) -> str:
    """Describe the installation, and the next command.

    Jobs of ``imageless`` workloads need ``--image``. ``smoke`` workloads have a size for the first
    run here. ``gpu_type`` is the default one of the installation, on which runs of ``judged``
    workloads get a verdict.
    """
    lines = [f"Installed in {install}: {_workloads(ready)}"]
    lines += [f"  {line}" for line in format_steps(install, record)]
    place = format_option(install)
    image = " --image IMAGE" if imageless else ""
    next_ = (
        f"llmb-run submit --min-scale{image}{place} --wait"
        if ready
        else f"llmb-install add WORKLOAD{place}"
    )
    if first := [key for key in ready if key in smoke]:
        next_ = f"llmb-run submit -w {first[0]} -s {SMOKE} --scale 1{place} --wait"
    lines += [f"note: {fits.explain_torch(imageless)}"] if imageless else []
    if gpu_type == CPU and ready and not {*ready} & {*judged}:
        lines.append(f"note: {_NO_VERDICTS}")
    folded = (fold(line, tables.output_width(), "    ") for line in lines)
    named = f"export LLMB_INSTALL={shlex.quote(str(install))}"
    # Commands stay in one line, to be pasted.
    return "\n".join([*folded, f"For every new shell: {named}", f"Next: {next_}"])


def summarize_plan(plan: InstallPlan, record: InstallRecord, ready: tuple[str, ...]) -> str:
    gpu_type, smoke = plan.intent.site.gpu_type, plan.intent.smoke
    return summarize(
        plan.install,
        record,
        ready,
        find_workloads_without_torch(plan),
        smoke,
        gpu_type=gpu_type,
        judged=plan.intent.judged,
    )


def format_outcome(plan: InstallPlan, outcome: InstallOutcome) -> str:
    """The outcome: what is ready, and the steps that each other workload lacks."""
    lines = [summarize_plan(plan, outcome.record, outcome.ready)] if outcome.ready else []
    for key, steps in outcome.lacking.items():
        lines.append(
            fold(f"Not ready: {key}, which needs {', '.join(steps)}", tables.output_width(), "    ")
        )
    return "\n".join(lines)


def outcome_data(plan: InstallPlan, outcome: InstallOutcome) -> dict[str, Any]:
    """Return the outcome as data. Workloads in ``not_ready`` lack the listed steps."""
    return {
        **_head(plan),
        "workloads": [*outcome.ready],
        "not_ready": {key: [*steps] for key, steps in outcome.lacking.items()},
        "steps": list_steps(plan.install, outcome.record),
        "notes": [*outcome.notes, *_torch_notes(plan)],
        "faults": [fault_data(fault) for fault in outcome.faults],
    }


def format_steps(install: Path, record: InstallRecord) -> list[str]:
    """A line for each finished step: its result, and whether it is missing."""
    return [
        f"{row['step']}:"
        f" {row['what']}{'' if row['there'] else ' (missing, or not readable by you)'}"
        for row in list_steps(install, record)
    ]


def list_notes(status: InstallStatus, folder: Path) -> list[str]:
    """Optional actions on the complete installation in ``folder``."""
    place = format_option(folder)
    notes = [status.note] if status.note is not None else []
    notes += [
        f"{key} is available but not installed: llmb-install add {key}{place}" for key in status.new
    ]
    notes += [
        f"{key} is installed, but no plugin offers it here: llmb-run plugins shows more"
        for key in status.unoffered
    ]
    if status.unused and not status.outdated:
        steps = ", ".join(status.unused)
        notes.append(f"no installed workload needs {steps}: llmb-install remove --unused{place}")
    return notes


def list_steps(install: Path, record: InstallRecord) -> list[Mapping[str, Any]]:
    table: list[Mapping[str, Any]] = []
    for key, finished in record.steps.items():
        kind, name = find_kind(key)
        exists = is_there(key, finished, install)
        description = kind.describe(name, finished.facts)
        table.append(
            {
                "step": key,
                "there": exists,
                "what": description,
                "workloads": list(finished.workloads),
            }
        )
    return table


_BUILT = {
    "here": "on this machine",
    "srun": "on a compute node, by srun",
    "sbatch": "environments on a compute node, by sbatch; images on this machine",
}


def describe_places(plan: InstallPlan) -> list[str]:
    """Describe the machines that fetch, build and run."""
    site = plan.intent.site
    venvs = [step for step in plan.intent.steps if isinstance(step, VenvStep)]
    names = " and ".join(step.name for step in venvs)
    if site.runs.nodes == "this-machine" and not site.runs.uses_images:
        source = f", from the environment{'s' * (len(venvs) > 1)} {names}" if venvs else ""
        return [f"Fetched, built and run on this machine{source}."]
    sentences = [f"Fetched and built: {_BUILT[plan.intent.answers.method]}."]
    if site.runs.pulls_images:
        return [*sentences, f"Jobs run in pods, which pull their image{_with_nemo(site.gpu_type)}."]
    if site.container:
        return [*sentences, f"Jobs run in their image on compute nodes{_with_nemo(site.gpu_type)}."]
    several = len(venvs) > 1
    if venvs:
        environments = (
            f"environment{'s' * several} {names}: nodes must see {'them' if several else 'it'}"
        )
        sentences.append(f"Jobs run on compute nodes from the {environments}.")
    return sentences


def _with_nemo(gpu_type: str) -> str:
    return "" if gpu_type == CPU else ", which contains the framework; it is not installed here"
