# SPDX-License-Identifier: Apache-2.0
"""The conditions of a report, and why a figure may differ from the published one. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from llmb.report.entries import Entry, per_gpu
from llmb.report.value import Report, Run
from llmb.results.facts import LogFacts
from llmb.runs.job import Job
from llmb.stats.interval import spread
from llmb.stats.measure import measure
from llmb.system.secrets import is_secret_name
from llmb.verdict import explain
from llmb.verdict.rules import published, throughput_ratio
from llmb.workload.published import Figure

_PASSWORD = re.compile(r"(?<=://)[^/@\s]+(?=@)")
NOT_KNOWN = "not in the log"
_MOST_HOSTS = 4
_SCALE = "GPUs"
_OWN = ("configuration", _SCALE, "own variables")  # never told as common: a line has its own, or none


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """``common``: names and values that hold for every run; ``columns`` and ``rows``: what differs between them."""

    common: tuple[tuple[str, str], ...]
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def conditions_of(report: Report) -> Conditions:
    """The conditions, a row for each that differs from the others."""
    shared = _shared_variables(report.runs)
    lines = [_line(run, report, shared) for run in report.runs]
    distinct = list({tuple(line.items()): line for line in lines}.values())
    names = list(dict.fromkeys(name for line in distinct for name in line))
    values = {name: {line[name] for line in distinct if line.get(name)} for name in names}
    columns = [name for name in names if len(values[name]) > 1 or (name in _OWN and values[name])]
    common = [(name, *values[name]) for name in names if len(values[name]) == 1 and name not in columns]
    if shared:
        common.append(("variables", " ".join(shown_variables(shared))))
    unknown = [name for name in _machine(LogFacts()) if report.runs and not values[name]]
    common.append(("in no log", ", ".join(unknown)))
    told = tuple((name, value) for name, value in (*_place(report), *common) if value)
    return Conditions(common=told, columns=tuple(columns), rows=_rows(distinct, columns))


def _rows(lines: Iterable[Mapping[str, str]], columns: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The values of the columns, lines that differ in nothing but the scale as one."""
    scales: dict[tuple[str, ...], set[int]] = {}
    for line in lines:
        rest = tuple(line[name] for name in columns if name != _SCALE)
        scales.setdefault(rest, set()).add(int(line[_SCALE]))
    rows = sorted((rest[0], sorted(found), rest) for rest, found in scales.items())
    return tuple((name, ", ".join(map(str, found)), *rest[1:]) for name, found, rest in rows)


def facts_of(run: Run, digests: Mapping[str, str]) -> list[tuple[str, str]]:
    """What a step time depends on and published figures do not tell, by name, as far as it is known here."""
    job, log = run.job, run.result.log or LogFacts()
    named = ", ".join(log.hosts[:_MOST_HOSTS]) + (", ..." if len(log.hosts) > _MOST_HOSTS else "")
    facts = {
        "image": _image(job.image, digests) if job.image is not None else "",
        "split": parallelism(job),
        "variables of the job": " ".join(shown_variables(job.env)) or "none",
        **_machine(log),
        "nodes": named,
    }
    return [(name, value or NOT_KNOWN) for name, value in facts.items() if value or name not in ("image", "nodes")]


def _machine(log: LogFacts) -> dict[str, str]:
    """What the log says of network and GPUs; empty where it says nothing."""
    return {
        "NCCL": log.nccl_version or "",
        "network": ", ".join(log.networks),
        "GPU": ", ".join(log.gpu_models),
        "driver": ", ".join(log.drivers),
        "SM clock": f"up to {log.max_sm_clock_mhz:g} MHz" if log.max_sm_clock_mhz else "",
        "power limit": f"{log.power_limit_w:g} W" if log.power_limit_w else "",
    }


def shown_variables(variables: Mapping[str, str]) -> list[str]:
    """``NAME=value`` of each, by name: what may be a secret is left out, and a password within an address too."""
    return [
        f"{name}={_PASSWORD.sub('...', value)}" for name, value in sorted(variables.items()) if not is_secret_name(name)
    ]


def parallelism(job: Job) -> str:
    """How the model is split, as ``tp 2 · pp 1 · cp 1 · micro batch 2``."""
    said = {"tp": job.tp, "pp": job.pp, "cp": job.cp, "vp": job.vp, "ep": job.ep if job.ep > 1 else None}
    parts = [f"{name} {value}" for name, value in said.items() if value is not None]
    return " · ".join([*parts, f"micro batch {job.mbs}"])


def day(seconds: float, made: datetime) -> str:
    """A time since the epoch in the time zone of ``made``, to the minute."""
    return datetime.fromtimestamp(seconds, made.tzinfo).strftime("%Y-%m-%d %H:%M")


def _place(report: Report) -> Iterator[tuple[str, str]]:
    yield "cluster", f"{report.cluster_name}, type {report.cluster_type}"
    if report.runs:
        times = sorted(run.created for run in report.runs)
        ends = dict.fromkeys(day(time, report.made) for time in (times[0], times[-1]))
        yield "submitted", " to ".join(ends)
        yield "llmb", ", ".join(sorted({run.llmb_version for run in report.runs}))


def _line(run: Run, report: Report, shared: Mapping[str, str]) -> dict[str, str]:
    job, result = run.job, run.result
    own = {name: value for name, value in run.environment.items() if shared.get(name) != value}
    reference = result.reference
    named = f"{job.workload.removeprefix('pretrain_')} {job.model_size} {job.dtype}"
    return {
        "configuration": named,
        "GPUs": str(job.scale),
        "GPU type": job.gpu_type,
        "global batch": per_gpu(job.gbs, job.scale),
        "sequence": str(job.seq_length),
        "layers": str(job.num_layers),
        "split": parallelism(job),
        "window": f"{result.window} of {result.steps}" if result.window else "",
        "FLOPs formula": result.flops_convention or "",
        "image": _image(job.image, report.digests),
        **_machine(result.log or LogFacts()),
        "step lines": (result.log and result.log.framework and f"as {result.log.framework} writes them") or "",
        "own variables": " ".join(shown_variables(own)),
        "published figure": "" if reference is None else f"release {reference.release}, window {reference.window}",
    }


def _image(reference: str | None, digests: Mapping[str, str]) -> str:
    if reference is None:
        return "no image"
    return f"{reference} {digests.get(reference, '(digest not known)')}"


def _shared_variables(runs: Sequence[Run]) -> dict[str, str]:
    """The variables that all runs have in common."""
    return dict(_common(run.environment.items() for run in runs))


def _common(found: Iterable[Iterable[tuple[str, str]]]) -> list[tuple[str, str]]:
    sets = [set(items) for items in found]
    return sorted(set.intersection(*sets)) if sets else []


_WORTH_SAYING = 0.01  # a fraction of the step time

Fact = tuple[str, str]  # a name and its value


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why an entry's figure may not be the published ``figure``: what ``differs``, and what its runs say (``seen``), as
    sentences; ``own``: what is known of it, not of the figure, and is not the same for all entries."""

    entry: Entry
    figure: Figure
    differs: tuple[str, ...]
    seen: tuple[str, ...]
    own: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """The reasons of several entries; ``common``: what is known of all of them and not of the published figures;
    ``not_told``: what their logs do not say, and how they would."""

    whys: tuple[Why, ...] = ()
    common: tuple[Fact, ...] = ()
    not_told: tuple[str, ...] = ()


def reasons(entries: Sequence[Entry], digests: Mapping[str, str]) -> Reasons:
    """The reasons of entries that compare with a published figure; the others are left out."""
    compared = [(entry, figure) for entry in entries if (figure := entry.runs[0].figure) is not None]
    facts = [facts_of(entry.runs[0], digests) for entry, _ in compared]
    common = [fact for fact in (facts[0] if facts else []) if all(fact in other for other in facts)]
    return Reasons(
        whys=tuple(
            Why(
                entry=entry,
                figure=figure,
                differs=tuple(differences(entry.runs[0], figure)),
                seen=tuple(seen_in(entry)),
                own=tuple(fact for fact in own if fact not in common),
            )
            for (entry, figure), own in zip(compared, facts, strict=True)
        ),
        common=tuple(common),
        not_told=tuple(
            dict.fromkeys(
                text for entry, _ in compared for text in explain.missing_in_log(entry.result.log, entry.job.scale)
            )
        ),
    )


def differences(run: Run, figure: Figure) -> Iterator[str]:
    """What is not the same here and at the figure, though they are compared."""
    return explain.differences_from_published(run.result, run.job, figure, peak_tflops=run.peak_tflops, row=run.row)


def seen_in(entry: Entry) -> list[str]:
    """What the runs themselves say about their step times, a sentence each."""
    return [*remarkable(entry), *_published_window(entry)]


def remarkable(entry: Entry) -> list[str]:
    """Those of the sentences that may be the cause: slow steps, drift, repeats that lie far apart."""
    said = [
        f"Steps of {run.id}: {'; '.join(told)}." for run in entry.runs if (told := [*explain.step_notes(run.result)])
    ]
    times = _times(entry.runs)
    if len(times) > 1 and max(times) > min(times) * (1 + _WORTH_SAYING):
        said.append(f"The slowest repeat takes {100 * (max(times) / min(times) - 1):.1f} % longer than the fastest.")
    return said


def _times(runs: Iterable[Run]) -> list[float]:
    return [run.result.time_mean_seconds for run in runs if run.result.time_mean_seconds is not None]


def _published_window(entry: Entry) -> Iterator[str]:
    """The ratio as the published figure was measured, where that was over other iterations."""
    figure, steps = entry.runs[0].figure, entry.result.steps
    if figure is None or steps is None or entry.result.same_window is not False:
        return
    found = [
        measure(run.samples, figure.window.of(steps, run.samples.first))
        for run in entry.runs
        if run.samples is not None
    ]
    times = [measured.time_mean for measured in found if measured is not None and measured.time_mean is not None]
    if len(times) == len(entry.runs):
        ratio, _ = throughput_ratio(spread(times), published(figure.step_time_s))
        window = explain.window_in_words(figure.window)
        yield f"Over the window of the published figure ({window}) the ratio is {ratio:.3f}."
