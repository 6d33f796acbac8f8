# SPDX-License-Identifier: Apache-2.0
"""Differences between two runs, or a run and the published one: settings, conditions, logs."""

from collections.abc import Iterator, Mapping
from typing import Any

from llmb.contract.flops import flops_convention
from llmb.contract.job import Job
from llmb.contract.rows import Row
from llmb.contract.settings import COMPARED, Settings
from llmb.contract.switches import SettingValue
from llmb.contract.window import LAST, Window
from llmb.measure.facts import LogFacts
from llmb.measure.result import Result
from llmb.measure.uneven import CLOCKS_DIFFER
from llmb.plan.find_reference import SAME
from llmb.plan.published import Figure, raises_vboost

NCCL_FIX = "--env NCCL_DEBUG=INFO --env NCCL_DEBUG_SUBSYS=INIT,NET"
_SPLIT = ("tp", "pp", "cp", "vp", "ep", "mbs")  # not etp: a row without it has that of tp
_MOST_HOSTS = 8
_PARALLEL = ("tp", "pp", "cp", "ep", "etp", "mbs", "gpus_per_node")  # None where a log omits them
_NOT_IN_LOGS = (*_PARALLEL, "vboost", "release", "rows_of")
# What a run does besides measuring, in words.
_DOES = {
    "saves": "saves checkpoints",
    "loads": "loads a checkpoint",
    "nccl_trace": "traces NCCL",
    "stragglers": "detects stragglers",
    "profile": "is profiled",
    "vboost": "raises vboost",
}


def differences(configuration: Settings, reference: Settings) -> list[str]:
    """Return the settings that differ, as ``tp 4, not 2``, without the fields of SAME.

    Parallelism that is unknown on one side does not differ.
    """
    names = (name for name in COMPARED if name not in (*SAME, "env", "dotted", "software"))
    values = [(name, getattr(configuration, name), getattr(reference, name)) for name in names]
    values += [
        (name, configuration.dotted.get(name), reference.dotted.get(name))
        for name in sorted({*configuration.dotted, *reference.dotted})
    ]
    variables = sorted({*configuration.env, *reference.env})
    values += [(name, configuration.env.get(name), reference.env.get(name)) for name in variables]
    sides = configuration.software, reference.software
    if sides[0] is not None and sides[1] is not None:
        words = sides[0].words, sides[1].words
        values += [(name, words[0].get(name), words[1].get(name)) for name in words[0] | words[1]]
    changes = [change for change in values if change[1] != change[2]]
    unlogged = {name for name, *pair in changes if name in _NOT_IN_LOGS and None in pair}
    if "tp" in unlogged:
        unlogged.add("vp")  # None means no vp if the rest is known
    return [_differs(*change) for change in changes if change[0] not in unlogged]


def _differs(name: str, value: Any, reference_value: Any) -> str:
    if name in _DOES:
        return f"{_DOES[name]}, the reference does not" if value else f"the reference {_DOES[name]}"
    if reference_value is None:
        return f"{name} {_word(value)}, unset in the reference"
    return f"{name} {_word(value)}, not {_word(reference_value)}"


def differing_facts(log: LogFacts | None, reference: LogFacts | None) -> list[str]:
    """Return the conditions (driver, clock, network, ...) that both logs show and that differ."""
    if log is None or reference is None:
        return []
    facts = (
        ("NCCL", log.nccl_version, reference.nccl_version),
        ("network", ", ".join(log.networks), ", ".join(reference.networks)),
        ("driver", ", ".join(log.drivers), ", ".join(reference.drivers)),
        ("GPU", ", ".join(log.gpu_models), ", ".join(reference.gpu_models)),
        ("SM clock in MHz", *_different_clocks(log.sm_clock_mhz, reference.sm_clock_mhz)),
        ("power limit in W", log.power_limit_w, reference.power_limit_w),
        ("vboost", log.vboost, reference.vboost),
        ("framework", log.framework, reference.framework),
    )
    return [
        f"{name} {_word(value)}, not {_word(reference_value)}"
        for name, value, reference_value in facts
        if value and reference_value and value != reference_value
    ]


def _different_clocks(
    clock: float | None, reference: float | None
) -> tuple[float | None, float | None]:
    """Return two measured clocks, or nothing if they differ as those of healthy GPUs do."""
    if clock and reference and abs(clock - reference) > CLOCKS_DIFFER * reference:
        return clock, reference
    return None, None


def _word(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "unset" if value is None else str(value)


def window_in_words(window: Window | None) -> str:
    """``iterations 11-44``."""
    if window is None:
        return "no iteration"
    if window == LAST:
        return "the last iteration"
    return (
        f"iteration {window.first}"
        if window.first == window.last
        else f"iterations {window.first}-{window.last}"
    )


def differences_from_published(
    result: Result,
    job: Job,
    figure: Figure,
    *,
    peak_tflops: float | None = None,
    row: Row | None = None,
) -> Iterator[str]:
    """Yield the differences between a run and the published figure that it is compared with.

    ``peak_tflops`` is the peak of one GPU at the job's dtype. ``row`` is the row of the workload's
    table that the published runs used.
    """
    if result.verdict.same_window is False:
        current, published = window_in_words(result.metrics.window), window_in_words(figure.window)
        yield f"window: {current} here, {published} of {figure.steps} in the published run"
    training = job.training
    convention = result.metrics.flops_convention or (
        None if (model := job.with_dotted.model) is None else flops_convention(model)
    )
    if figure.flops_convention is not None and figure.flops_convention != convention:
        converted_mfu, mfu = (
            result.verdict.mfu_reference_convention,
            "so the two MFU cannot be compared",
        )
        if converted_mfu is not None and figure.mfu is not None:
            figures = f"{100 * converted_mfu:.2f} % here and {100 * figure.mfu:.2f} % there"
            mfu = f"which gives an MFU of {figures}"
        formulas = f"{convention} here, {figure.flops_convention} in the published run"
        yield f"FLOPs formula: {formulas}, {mfu}"
    if figure.peak_tflops is not None and figure.peak_tflops != peak_tflops:
        yield f"peak for the MFU: {figure.peak_tflops:g} TFLOPS in the published run"
    for name in _SPLIT if row is not None and training is not None else ():
        current, published = (getattr(settings, name) or "none" for settings in (training, row))
        if current != published:
            yield f"{name}: {current} here, {published} in the workload's table"
    if job.switches.fp8 == "current":
        yield "fp8 scaling: current here, delayed in the published runs"
    if job.switches.tokenizer == "hub":
        yield "tokenizer: the model's own here, NeMo's null tokenizer in the published runs"
    if (vboost := _vboost(result, job, figure)) is not None:
        yield vboost
    yield from settings_of_framework(job.dotted)
    if job.env:
        yield "variables set here: " + ", ".join(sorted(job.env))


def settings_of_framework(dotted: Mapping[str, SettingValue]) -> Iterator[str]:
    """Yield the settings of the framework that the user changed, which published runs have not."""
    for name, value in sorted(dotted.items()):
        yield f"{name} {_word(value)}, not the table's"


def _vboost(result: Result, job: Job, figure: Figure) -> str | None:
    """Return the difference in vboost from the published runs, or None."""
    published = raises_vboost(figure.release)
    log = result.log.vboost if result.log is not None else None
    if job.vboost and published and log is not None and ":" in log:  # some nodes refused it
        return f"vboost: {log} here, on in the published runs"
    if job.vboost in (None, published):
        return None
    words = "off", "on"
    return f"vboost: {words[job.vboost]} here, {words[published]} in the published runs"


def settings_in_common(result: Result) -> str:
    """Return the settings that a result has in common with its reference."""
    configuration, window = (
        result.identity.configuration,
        ", window" if result.verdict.same_window else "",
    )
    parameters = ", parameters" if configuration is not None and configuration.parameters else ""
    training = (
        ", global batch, sequence length, layers"
        if configuration is None or configuration.gbs is not None
        else ""
    )
    return f"size, dtype, GPU type, number of GPUs{parameters}{training}{window}"


def where_it_ran(
    log: LogFacts | None, image: str | None = None, digest: str | None = None
) -> Iterator[str]:
    """Yield image, network, GPUs and nodes of a run, as far as its record and its log show them."""
    if image is not None:
        yield f"image {image} ({digest or 'unknown digest'})"
    if log is None:
        return
    hosts = ", ".join(log.hosts[:_MOST_HOSTS]) + (", ..." if len(log.hosts) > _MOST_HOSTS else "")
    facts = (
        f"network {', '.join(log.networks)}" if log.networks else "",
        f"NCCL {log.nccl_version}" if log.nccl_version else "",
        f"{', '.join(log.gpu_models)}" if log.gpu_models else "",
        f"driver {', '.join(log.drivers)}" if log.drivers else "",
        f"SM clock {log.sm_clock_mhz:g} MHz under load" if log.sm_clock_mhz else "",
        f"slowed by {', '.join(log.slowed_by)}" if log.slowed_by else "",
        f"power limit {log.power_limit_w:g} W" if log.power_limit_w else "",
        f"vboost {log.vboost}" if log.vboost else "",
        (
            f"{log.nodes} node{'s' if log.nodes > 1 else ''}{f' ({hosts})' if hosts else ''}"
            if log.nodes
            else ""
        ),
    )
    if any(facts):
        yield ", ".join(text for text in facts if text)
    yield from (f"warning in the log: {text}" for text in log.warnings)


def printed_by(log: LogFacts, program: str) -> str:
    """Return what printed the step lines of a log: a framework, or the ``program`` that prints the
    lines of a framework which did not run. Empty without step lines.
    """
    return (program or log.framework) if log.framework else ""


def missing_in_log(log: LogFacts | None, scale: int) -> Iterator[str]:
    """Yield what the log omits although the speed of several GPUs depends on it, with the fix."""
    facts = log or LogFacts()
    missing = [
        name
        for name, logged in (("NCCL version", facts.nccl_version), ("network", facts.networks))
        if not logged
    ]
    if scale > 1 and missing:
        yield f"missing in the log: {' and '.join(missing)}; to log them, submit with {NCCL_FIX}"
