# SPDX-License-Identifier: Apache-2.0
"""The conditions of a report: common to all runs, different, and changed between nights. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from llmb.contract.job import Training
from llmb.core.grouping import grouped
from llmb.core.node_lists import fold
from llmb.core.secret_patterns import hide
from llmb.core.secrets import is_secret_name
from llmb.core.values import dataclass
from llmb.judge.differences import differences, printed_by
from llmb.measure.facts import NCCL, NETWORK, LogFacts
from llmb.measure.result import ReferenceValue
from llmb.measure.result_notes import parameters_in_words
from llmb.measure.uneven import (
    CLOCKS_DIFFER,
    DRIVER,
    GPU,
    POWER_LIMIT,
    SM_CLOCK,
    in_words,
    megahertz,
    watts,
)
from llmb.show.report.entries import ReportEntry, per_gpu
from llmb.show.report.value import Against, Report, Run

NOT_LOGGED = "not in the log"
_SCALE = "GPUs"
_OWN = ("configuration", _SCALE, "own variables")  # never common: each row has its own, or none


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Names and values ``common`` to every run. ``columns`` and ``rows`` have the others."""

    common: tuple[tuple[str, str], ...]
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def conditions_of(report: Report) -> Conditions:
    """The conditions of all runs, with a row for each combination that differs."""
    variables = [set(run.environment.items()) for run in report.runs]
    # those that all runs have in common
    shared = dict(sorted(set.intersection(*variables))) if variables else {}
    lines = [_line(run, report, shared) for run in report.runs]
    distinct = list({tuple(line.items()): line for line in lines}.values())
    names = list(dict.fromkeys(name for line in distinct for name in line))
    values = {name: {line[name] for line in distinct if line.get(name)} for name in names}
    columns = [name for name in names if len(values[name]) > 1 or (name in _OWN and values[name])]
    common = [
        (name, *values[name]) for name in names if len(values[name]) == 1 and name not in columns
    ]
    if shared:
        common.append(("variables", " ".join(shown_variables(shared))))
    missing = [name for name in _machine(LogFacts()) if report.runs and not values[name]]
    common.append(("missing in all logs", ", ".join(missing)))
    named = tuple((name, value) for name, value in (*_cluster(report), *common) if value)
    return Conditions(common=named, columns=tuple(columns), rows=_rows(distinct, columns))


def _rows(
    lines: Iterable[Mapping[str, str]], columns: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    """Return the values of the columns. Lines that differ only in the scale are merged."""
    scales = grouped(
        (tuple(line.get(name, "") for name in columns if name != _SCALE), int(line[_SCALE]))
        for line in lines
    )
    rows = sorted((cells[0], sorted({*gpus}), cells) for cells, gpus in scales.items())
    return tuple((name, ", ".join(map(str, gpus)), *cells[1:]) for name, gpus, cells in rows)


def facts_of(run: Run, digests: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the known facts, by name, that a measurement depends on and published figures omit."""
    job, log = run.job, run.result.log or LogFacts()
    facts = {
        "image": _image(job.image, digests) if job.image is not None else "",
        "parallelism": parallelism(job.training) if job.training is not None else "",
        "variables of the job": " ".join(shown_variables(job.env)) or "none",
        **_machine(log),
        "warnings": ", ".join(log.warnings),
        "nodes": fold(run.hosts),
    }
    return [
        (name, value or NOT_LOGGED)
        for name, value in facts.items()
        if value or name not in ("image", "parallelism", "warnings", "nodes")
    ]


def _machine(log: LogFacts) -> dict[str, str]:
    """Return network and GPUs according to the log, empty if it omits them."""
    return {
        "NCCL": log.nccl_version or "",
        "network": ", ".join(log.networks),
        "GPU": ", ".join(log.gpu_models),
        "driver": ", ".join(log.drivers),
        "SM clock": clock_in_words(log),
        "power limit": f"{log.power_limit_w:g} W" if log.power_limit_w else "",
    }


def clock_in_words(log: LogFacts) -> str:
    """Return the clock under load, or else the highest that the GPUs can have."""
    if log.sm_clock_mhz:
        return in_words(SM_CLOCK, megahertz(log.sm_clock_mhz))
    return f"up to {megahertz(log.max_sm_clock_mhz)}" if log.max_sm_clock_mhz else ""


def shown_variables(variables: Mapping[str, str]) -> list[str]:
    """``NAME=value`` of each, sorted, without possible secrets."""
    return [
        f"{name}={hide(value)[0]}"
        for name, value in sorted(variables.items())
        if not is_secret_name(name)
    ]


def parallelism(training: Training) -> str:
    """The parallelism of a job, as ``tp 2 · pp 1 · cp 1 · micro batch 2``."""
    sizes = {name: getattr(training, name) for name in ("tp", "pp", "cp", "vp")}
    if training.model.moe is not None:
        sizes |= {"ep": training.ep, "etp": training.etp}
    parts = [f"{name} {value}" for name, value in sizes.items() if value is not None]
    return " · ".join([*parts, f"micro batch {training.mbs}"])


def _training(training: Training, scale: int) -> dict[str, str]:
    return {
        "global batch": per_gpu(training.gbs, scale),
        "sequence": str(training.seq_length),
        "layers": str(training.num_layers),
        "parallelism": parallelism(training),
    }


def day(seconds: float, made: datetime) -> str:
    """A time since the epoch in the time zone of ``made``, to the minute."""
    return datetime.fromtimestamp(seconds, made.tzinfo).strftime("%Y-%m-%d %H:%M")


def span(report: Report) -> str:
    """The days on which the runs were submitted."""
    days = sorted(day(run.created, report.made)[:10] for run in report.runs)
    return "" if not days else days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"


def _cluster(report: Report) -> Iterator[tuple[str, str]]:
    yield "cluster", f"{report.cluster_name}, type {report.cluster_type}"
    if report.runs:
        times = sorted(run.created for run in report.runs)
        ends = dict.fromkeys(day(time, report.made) for time in (times[0], times[-1]))
        yield "submitted", " to ".join(ends)
        yield "llmb", ", ".join(sorted({run.llmb_version for run in report.runs}))


def _line(run: Run, report: Report, shared: Mapping[str, str]) -> dict[str, str]:
    job, result = run.job, run.result
    variables = {
        name: value for name, value in run.environment.items() if shared.get(name) != value
    }
    reference = result.verdict.reference
    named = f"{job.workload.removeprefix('pretrain_')} {job.model_size} {job.dtype}"
    return {
        "configuration": named,
        "GPUs": str(job.scale),
        "GPU type": job.gpu_type,
        "parameters": parameters_in_words(job.parameters),
        **(_training(job.training, job.scale) if job.training is not None else {}),
        "window": f"{result.metrics.window} of {result.metrics.steps}"
        if result.metrics.window
        else "",
        "FLOPs formula": result.metrics.flops_convention or "",
        "image": _image(job.image, report.digests),
        **_machine(result.log or LogFacts()),
        "warnings": ", ".join((result.log or LogFacts()).warnings),
        "step lines of": printed_by(result.log or LogFacts(), run.program),
        "own variables": " ".join(shown_variables(variables)),
        **_reference(reference, report.against),
    }


def _reference(reference: ReferenceValue | None, against: Against) -> dict[str, str]:
    name = "published figure" if against.is_published else "compared with"
    release = "release " if against.is_published else ""
    return {
        name: ""
        if reference is None
        else f"{release}{reference.release}, window {reference.window}"
    }


def _image(reference: str | None, digests: Mapping[str, str]) -> str:
    return (
        "no image"
        if reference is None
        else f"{reference} {digests.get(reference, '(unknown digest)')}"
    )


_MOST_NODES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionChange:
    """A change of ``name``, as ``driver 570.86.15 → 575.51.03``."""

    name: str
    text: str


def changes_between(before: ReportEntry, after: ReportEntry) -> Iterator[ConditionChange]:
    """Yield the known differences between the runs of two nights, nodes last."""
    earlier, later = _facts(before), _facts(after)
    for name, old in earlier.items():
        new = later[name]
        if old and new and old != new and not (name == SM_CLOCK and _is_noise(old, new)):
            yield ConditionChange(name=name, text=in_words(name, f"{name} {old} → {new}"))
    later_configuration, earlier_configuration = (
        after.result.identity.configuration,
        before.result.identity.configuration,
    )
    if later_configuration is not None and earlier_configuration is not None:
        for text in differences(later_configuration, earlier_configuration):
            if not text.startswith(("image ", "framework ")):  # among the facts
                yield ConditionChange(name="setting", text=f"setting: {text}")
    yield from _nodes(_hosts(before), _hosts(after))


def _is_noise(old: str, new: str) -> bool:
    """Return True if two measured clocks differ as those of healthy GPUs do."""
    before, after = (float(clock.split()[0]) for clock in (old, new))
    return abs(after - before) <= CLOCKS_DIFFER * before


def _facts(entry: ReportEntry) -> dict[str, str]:
    """The values of all runs of an entry, by what they are of."""
    logs = [run.result.log or LogFacts() for run in entry.runs]
    return {
        SM_CLOCK: megahertz(
            min((log.sm_clock_mhz for log in logs if log.sm_clock_mhz), default=None)
        ),
        POWER_LIMIT: watts(
            min((log.power_limit_w for log in logs if log.power_limit_w), default=None)
        ),
        DRIVER: _each([word for log in logs for word in log.drivers]),
        GPU: _each([word for log in logs for word in log.gpu_models]),
        NETWORK: _each([word for log in logs for word in log.networks]),
        NCCL: _each([log.nccl_version or "" for log in logs]),
        "image": _each([run.job.image or "" for run in entry.runs]),
        "llmb": _each([run.llmb_version for run in entry.runs]),
    }


def _each(words: Sequence[str]) -> str:
    return ", ".join(sorted({word for word in words if word}))


def _hosts(entry: ReportEntry) -> set[str]:
    return {host for run in entry.runs for host in run.hosts}


def _nodes(before: set[str], after: set[str]) -> Iterator[ConditionChange]:
    """Return the new nodes. A scheduler gives others each time, so many are only counted."""
    new = sorted(after - before)
    if not before or not new:
        return
    if len(new) <= _MOST_NODES:
        text = f"new node{'s' if len(new) > 1 else ''} {', '.join(new)}"
    else:
        text = f"{len(new)} of {len(after)} nodes are new"
    yield ConditionChange(name="nodes", text=text)
