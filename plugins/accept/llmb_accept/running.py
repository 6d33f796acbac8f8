# SPDX-License-Identifier: Apache-2.0
"""Runs an acceptance by the commands of llmb-run: asks what has run, submits, waits."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from llmb import api
from llmb_accept.acceptance import Acceptance, root_of, save
from llmb_accept.judge import (
    AcceptanceRun,
    Assessment,
    Evidence,
    Group,
    Needed,
    NodeWord,
    assess,
    placed,
    split,
)
from llmb_accept.plan import plan_fault

if TYPE_CHECKING:
    from llmb_accept.plan import Phase, PlanRow

_OUT_OF_SERVICE = "nodes-out-of-service"  # the code of a refusal
# By what an estimate follows from
_SOURCES = {"past": "past runs", "published": "published step times", "limit": "time limits"}
_UNSENT = "NOT_SUBMITTED"  # the state of a run that no scheduler has


def find_runs(context: api.CommandContext, acceptance: Acceptance) -> list[api.RunRecord]:
    """Return the runs of all sessions of an acceptance, also those that were not submitted."""
    prefix = acceptance.session("")
    return [
        run
        for run in context.runs()
        if run.session is not None and (run.session.name or "").startswith(prefix)
    ]


def gather(
    context: api.CommandContext, acceptance: Acceptance, install: Path | None = None
) -> Evidence:
    """Return what has run. ``install``: the folder of an archive. Raises LlmbError."""
    records = find_runs(context, acceptance)
    if not records:
        return Evidence()
    options = ("--install", str(install)) if install is not None else ()
    ids = [run.id for run in records]
    _, text = context.call(["results", *ids, "--format", "json", *options])
    rows = {row["run"]: row for row in json.loads(text)["results"]}
    if acceptance.baseline is not None:
        words = ["--baseline", acceptance.baseline, "--format", "json", *options]
        _, text = context.call(["compare", ",".join(ids), *words])
        rows = compared(rows, json.loads(text)["comparisons"])
    runs = tuple(
        _run(record, rows[record.id])
        for record in sorted(records, key=lambda record: (record.created, record.id))
        if rows[record.id]["state"] != _UNSENT
    )
    sessions = {
        acceptance.session(phase.name)
        for phase in acceptance.plan.phases
        if phase.check is not None
    }
    checks = {
        run.id: _words(context, run.id, options)
        for run in runs
        if run.session in sessions and not run.is_open
    }
    return Evidence(runs=runs, checks=checks)


def compared(
    rows: Mapping[str, Mapping[str, Any]], comparisons: Sequence[Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Return the rows of ``results`` with what ``compare --baseline`` says of their runs.

    A metric without a published figure gets its ratio to the baseline. ``wrong`` says why the loss
    or the memory of a run is not that of the baseline, whatever its speed.
    """
    enriched = dict(rows)
    for comparison in comparisons:
        verdicts = comparison["metrics"]
        wrong = [
            verdicts[name]["reason"]
            for name in ("loss", "peak_memory")
            if verdicts.get(name, {}).get("verdict") == "FAIL"
        ]
        for run in comparison["runs"]:
            if (row := rows.get(run)) is not None:
                metrics = {
                    name: _with_ratio(metric, verdicts.get(name))
                    for name, metric in row["metrics"].items()
                }
                enriched[run] = {**row, "metrics": metrics, "wrong": "; ".join(wrong)}
    return enriched


def _with_ratio(metric: Mapping[str, Any], verdict: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the metric of a run with its own ratio to the baseline, if it has none."""
    reference = None if verdict is None else verdict["reference"]
    if metric["ratio"] is not None or reference is None or not metric["mean"]:
        return metric
    ratio = metric["mean"] / reference["value"]
    ratio = ratio if metric["better"] == "higher" else 1 / ratio
    return {**metric, "ratio": ratio, "against": reference["release"]}


def _run(record: api.RunRecord, row: Mapping[str, Any]) -> AcceptanceRun:
    software = record.software
    return AcceptanceRun(
        id=record.id,
        session=(record.session and record.session.name) or "",
        nodelist=str(record.launch.slurm_args.get("nodelist") or ""),
        llmb_version=record.llmb_version,
        plugin=(software and software.plugin) or "",
        plugin_version=(software and software.plugin_version) or "",
        row=row,
    )


def _words(context: api.CommandContext, run: str, options: Sequence[str]) -> dict[str, NodeWord]:
    """Return the nodes of a check, empty if it has no values."""
    try:
        _, text = context.call(["nodes", "show", "--check", run, "--format", "json", *options])
    except api.LlmbError as error:
        if error.code != "check-empty":
            raise
        return {}
    except click.UsageError as error:
        raise api.LlmbError(
            f"the checks of nodes cannot be read: {error.format_message()}",
            hint="install the distribution llmb-nodes",
            code="nodes-missing",
        ) from error
    return {
        node["name"]: NodeWord(word=node["word"], reasons=tuple(node["reasons"]))
        for node in json.loads(text)["nodes"]
    }


def complete(context: api.CommandContext, acceptance: Acceptance) -> tuple[Assessment, Evidence]:
    """Submit and wait until nothing of the plan is left to run. Raises LlmbError.

    A node that was good for a job of the plan, and that the scheduler then refuses, is lost.
    """
    root = root_of(context.config)
    while True:
        evidence = gather(context, acceptance)
        assessment = assess(acceptance, evidence)
        if assessment.is_complete:
            return assessment, evidence
        known = acceptance
        for needed in assessment.needed:
            try:
                _submit(context, acceptance, needed, root / acceptance.name)
            except api.LlmbError as error:
                lost = lost_nodes(error, acceptance.nodes) if evidence.runs else {}
                if not lost.keys() - acceptance.lost.get(needed.phase, {}).keys():
                    raise
                for node, reason in lost.items():
                    api.say(f"{node} fails {needed.phase}: {reason}")
                # Written at once, so that the archive and a continued acceptance know it too.
                acceptance = acceptance.with_lost(needed.phase, lost)
                save(root, acceptance)
        if acceptance is not known:
            continue
        if assessment.needed:
            before, assessment = assessment, assess(acceptance, gather(context, acceptance))
            if assessment.needed == before.needed and not assessment.waiting:
                raise _not_submitted(assessment.needed[0].session)
        if assessment.waiting:
            context.call(["jobs", "wait", *assessment.waiting])


def lost_nodes(error: api.LlmbError, nodes: Sequence[str]) -> dict[str, str]:
    """Return which of ``nodes`` are out of service, each with the reason.

    Empty if a submission was refused for another cause, or for that one too.
    """
    faults: Sequence[api.Fault] = getattr(error, "faults", ())
    if any(fault.code != _OUT_OF_SERVICE for fault in faults):
        return {}
    return {
        node: fault.message
        for fault in faults
        if fault.key == "nodelist"  # one without it is about a whole partition
        for node in api.expand_nodes(str(fault.value))
        if node in nodes
    }


def _submit(
    context: api.CommandContext, acceptance: Acceptance, needed: Needed, folder: Path
) -> None:
    from llmb import api

    api.say(f"{needed.session}: {_jobs(len(needed.groups))}")
    if needed.row is None:
        try:
            context.call(_check_words(acceptance, needed.groups[0], needed.check, needed.session))
        except api.LlmbError as error:
            if error.code != "check-empty":  # the run is recorded, and its nodes are UNKNOWN
                raise
        return
    path = folder / "lists" / f"{needed.session}.yaml"
    api.write_file(path, job_list(acceptance, needed.row, needed.groups, needed.gpus))
    words = ["submit", str(path), "--session", needed.session, "--format", "json"]
    code, _ = context.call([*words, *acceptance.options])
    if code != 0:
        raise _not_submitted(needed.session)


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _not_submitted(session: str) -> api.LlmbError:
    return api.LlmbError(
        f"the jobs of {session} were not all submitted",
        hint="correct what llmb-run submit says above; the same command continues",
        code="accept-not-submitted",
        value=session,
    )


def _check_words(acceptance: Acceptance, group: Group, kind: str | None, session: str) -> list[str]:
    words = ["nodes", "check", "--format", "json", "--session", session, *acceptance.options]
    words += ["--quick"] if kind == "quick" else []
    words += ["--nodelist", acceptance.nodelist(group)] if acceptance.names_nodes else []
    return words


def job_list(acceptance: Acceptance, row: PlanRow, groups: Sequence[Group], gpus: int) -> str:
    """Return the job list with one job of ``row`` on each of ``groups``."""
    section: dict[str, Any] = {**row.task, "scales": [gpus]}
    if row.dtype is not None:
        section["dtypes"] = [row.dtype]
    if acceptance.names_nodes:
        section["tasks"] = [{"nodelist": acceptance.nodelist(group)} for group in groups]
    return yaml.safe_dump({row.job: section}, sort_keys=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCost:
    """What a row of a plan, or a check, takes if every node passes."""

    phase: str
    what: str
    jobs: int
    gpus: int
    #: As the jobs are estimated. None if it cannot run.
    gpu_hours: float | None
    #: By the time limits of the jobs. None if it cannot run.
    most_gpu_hours: float | None = None
    #: What the estimate follows from: ``past``, ``published`` or ``limit``. None if it cannot run.
    source: str | None = None
    #: Why it cannot run.
    problem: str = ""

    @property
    def key(self) -> str:
        """Its key in ``Acceptance.cannot_run``."""
        return self.phase if self.what == "check" else f"{self.phase}.{self.what}"


def estimates(context: api.CommandContext, acceptance: Acceptance) -> Iterator[RowCost]:
    """Return an estimate of each row, by dry runs. Nothing is written or submitted.

    Raises UsageError for a limit of a metric that a job does not measure.
    """
    for number, phase in enumerate(acceptance.plan.phases):
        if phase.check is not None:
            yield _of_check(context, acceptance, phase)
            continue
        rows = {
            f"phases[{number}].jobs[{place}]": row
            for place, row in enumerate(phase.rows)
            if not row.gpu_types or acceptance.gpu_type in row.gpu_types
        }
        for key, row in rows.items():
            yield _of_row(context, acceptance, phase, row, key)
        if not rows:
            problem = f"the plan has no job for {acceptance.gpu_type}"
            yield RowCost(
                phase=phase.name, what="jobs", jobs=0, gpus=0, gpu_hours=None, problem=problem
            )


def hours_and_most(rows: Sequence[RowCost]) -> tuple[float, float]:
    """Return the hours of rows together: as estimated, and by their time limits."""
    return (
        sum(row.gpu_hours or 0 for row in rows),
        sum(row.most_gpu_hours or 0 for row in rows),
    )


def cost_in_words(rows: Sequence[RowCost], unit: str) -> str:
    """Return ``up to 12.00 GPU-hours by the time limits, about 3.10 (from past runs)``."""
    hours, most = hours_and_most(rows)
    limits = f"up to {most:.2f} {unit} by the time limits"
    known = {row.source for row in rows} - {None}
    if not known - {"limit"}:
        return limits
    sources = " and ".join(words for source, words in _SOURCES.items() if source in known)
    return f"{limits}, about {hours:.2f} (from {sources})"


def _of_check(context: api.CommandContext, acceptance: Acceptance, phase: Phase) -> RowCost:
    words = _check_words(acceptance, acceptance.nodes, phase.check, acceptance.session(phase.name))
    job, problem = _dry_run(context, [*words, "--dry-run"])
    row = RowCost(
        phase=phase.name,
        what="check",
        jobs=1,
        gpus=acceptance.gpus,
        gpu_hours=None,
        problem=problem,
    )
    return row if job is None else _with_cost(row, job)


def _of_row(
    context: api.CommandContext, acceptance: Acceptance, phase: Phase, row: PlanRow, key: str
) -> RowCost:
    """Return the estimate of a row, which is at ``key`` of the plan."""
    size = phase.nodes
    groups: Sequence[Group] = ((acceptance.nodes),)
    gpus, problem, job = acceptance.gpus, "", None
    if size is None:
        try:
            group, gpus = placed(row, acceptance.nodes, acceptance.gpus_per_node)
            groups = (group,)
        except LookupError as error:
            problem, gpus = str(error), row.scales[0]
    elif size > len(acceptance.nodes):
        problem = f"it needs {size} nodes"
    else:
        groups, gpus = split(acceptance.nodes, size), size * acceptance.gpus_per_node
    if not problem:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"{row.name}.yaml")
            path.write_text(job_list(acceptance, row, groups[:1], gpus), encoding="utf-8")
            words = ["submit", str(path), "--dry-run", "--format", "json", *acceptance.options]
            job, problem = _dry_run(context, words)
            # The place in a file that is gone says nothing.
            problem = re.sub(rf"{re.escape(str(path))}:\d+: ", "", problem)
    cost = RowCost(
        phase=phase.name,
        what=row.name,
        jobs=len(groups),
        gpus=gpus,
        gpu_hours=None,
        problem=problem,
    )
    if job is None:
        return cost
    names = context.workloads[job["workload"]].metric_names(job["model_size"])
    check_minimum(row, names, acceptance.plan_file, key)
    return _with_cost(cost, job)


def check_minimum(row: PlanRow, names: Sequence[str], place: str, key: str) -> None:
    """Raise UsageError for a minimum of a metric that is not among ``names``, those of the job."""
    for name in row.minimum:
        if name not in names:
            problem = f"is no metric of {row.job}"
            raise plan_fault(place, f"{key}.minimum.{name}", problem, api.suggest(name, names))


def _with_cost(row: RowCost, job: Mapping[str, Any]) -> RowCost:
    """Return a row with the cost of its jobs. ``job``: one of them, of a dry run."""
    estimate = job["estimate"]
    return replace(
        row,
        gpu_hours=float(estimate["gpu_hours"]) * row.jobs,
        most_gpu_hours=float(estimate["most_gpu_hours"]) * row.jobs,
        source=estimate["from"],
    )


def _dry_run(
    context: api.CommandContext, words: Sequence[str]
) -> tuple[Mapping[str, Any] | None, str]:
    """Return the one job of a dry run, or why it cannot run."""
    try:
        code, text = context.call(words)
    except api.LlmbError as error:
        hints = [error.hint, *(fault.hint for fault in getattr(error, "faults", ()))]
        hint = next(filter(None, hints), None)
        return None, f"{error.message} ({hint})" if hint else error.message
    except click.ClickException as error:
        return None, error.format_message()
    jobs = json.loads(text)["jobs"] if code == 0 else []
    if len(jobs) != 1:
        return None, f"it gives {len(jobs)} jobs: a row of a plan is one job"
    return jobs[0], ""
