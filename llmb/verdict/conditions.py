# SPDX-License-Identifier: Apache-2.0
"""What a step time may depend on beside its job: what is not as published, where it ran, how its steps went. Pure."""

from collections.abc import Iterator

from llmb.results.facts import LogFacts
from llmb.results.result import Result
from llmb.runs.job import Job
from llmb.stats.measure import LAST, Window
from llmb.workload.model import flops_convention
from llmb.workload.published import Figure, raises_vboost
from llmb.workload.rows import Row

NOT_PUBLISHED = "of the published run none of this is known; of two own runs: llmb-run compare {} OTHER"
NCCL_CURE = "--env NCCL_DEBUG=INFO --env NCCL_DEBUG_SUBSYS=INIT,NET"
_SPLIT = ("tp", "pp", "cp", "vp", "ep", "mbs")
_MOST_HOSTS = 8
_WORTH_SAYING = 0.01  # a fraction of the step time


def window_in_words(window: Window | None) -> str:
    """``iterations 11-44``."""
    if window is None:
        return "no iteration"
    if window == LAST:
        return "the last iteration"
    return f"iteration {window.first}" if window.first == window.last else f"iterations {window.first}-{window.last}"


def differences(
    result: Result, job: Job, figure: Figure, *, peak_tflops: float | None = None, row: Row | None = None
) -> Iterator[str]:
    """What is not the same, though the two are compared.

    ``peak_tflops``: of one GPU at the job's dtype; ``row``: of the workload's table, which the published runs went by.
    """
    if result.same_window is False:
        here, there = window_in_words(result.window), window_in_words(figure.window)
        yield f"the window: {here} here, {there} of {figure.steps} there"
    own = flops_convention(job.model)
    if figure.flops_convention is not None and figure.flops_convention != own:
        yield f"the FLOPs formula: {own} here, {figure.flops_convention} there, {_by_theirs(result, figure)}"
    if figure.peak_tflops is not None and figure.peak_tflops != peak_tflops:
        yield f"the peak under the MFU: {figure.peak_tflops:g} TFLOPS there"
    for name in _SPLIT if row is not None else ():
        here, there = (getattr(one, name) or "none" for one in (job, row))
        if here != there:
            yield f"{name}: {here} here, {there} in the workload's table"
    if job.switches.fp8 == "current":
        yield "the scaling of fp8: current here, delayed in the published runs"
    if job.switches.tokenizer == "hub":
        yield "the tokenizer: the model's own here, NeMo's null tokenizer there"
    if (found := _vboost(result, job, figure)) is not None:
        yield found
    if job.env:
        yield "variables set here: " + ", ".join(sorted(job.env))


def _by_theirs(result: Result, figure: Figure) -> str:
    """Both MFU by the formula and the peak of the published one."""
    if result.mfu_reference_convention is None or figure.mfu is None:
        return "so the two MFU do not compare"
    return f"by which the MFU is {100 * result.mfu_reference_convention:.2f} % here, {100 * figure.mfu:.2f} % there"


def _vboost(result: Result, job: Job, figure: Figure) -> str | None:
    """How vboost differs from the published runs, where it does."""
    there = raises_vboost(figure.release)
    log = result.log.vboost if result.log is not None else None
    if job.vboost and there and log is not None and ":" in log:  # on some nodes it was not to be had
        return f"vboost: {log} here, on in the published runs"
    if job.vboost in (None, there):
        return None
    return f"vboost: {'on' if job.vboost else 'off'} here, {'on' if there else 'off'} in the published runs"


def alike(result: Result) -> str:
    """What is the same, since the two are compared."""
    window = ", the window" if result.same_window else ""
    return f"size, dtype, GPU type, number of GPUs, global batch, sequence length, layers{window}"


def place(log: LogFacts | None, image: str | None = None, digest: str | None = None) -> Iterator[str]:
    """Where it ran, as far as its record, its log and the installer (``digest`` of the image) say."""
    if image is not None:
        yield f"image {image} ({digest or 'digest not known'})"
    if log is None:
        return
    hosts = ", ".join(log.hosts[:_MOST_HOSTS]) + (", ..." if len(log.hosts) > _MOST_HOSTS else "")
    said = (
        f"step lines as {log.framework} writes them" if log.framework else "",
        f"network {', '.join(log.networks)}" if log.networks else "",
        f"NCCL {log.nccl_version}" if log.nccl_version else "",
        f"{', '.join(log.gpu_models)}" if log.gpu_models else "",
        f"driver {', '.join(log.drivers)}" if log.drivers else "",
        f"SM clock up to {log.max_sm_clock_mhz:g} MHz" if log.max_sm_clock_mhz else "",
        f"power limit {log.power_limit_w:g} W" if log.power_limit_w else "",
        f"vboost {log.vboost}" if log.vboost else "",
        f"{log.nodes} node{'s' if log.nodes > 1 else ''}{f' ({hosts})' if hosts else ''}" if log.nodes else "",
    )
    if any(said):
        yield ", ".join(text for text in said if text)


def not_told(log: LogFacts | None, scale: int) -> Iterator[str]:
    """What decides the speed of several GPUs and is not in the log, with the way to have it there."""
    told = log or LogFacts()
    missing = [
        name for name, known in (("NCCL's version", told.nccl_version), ("the network", told.networks)) if not known
    ]
    if scale > 1 and missing:
        yield f"not in the log: {' and '.join(missing)}; NCCL says it with {NCCL_CURE}"


def steps(result: Result) -> Iterator[str]:
    """What is particular about the steps of the window."""
    own = result.statistics
    if own is None:
        return
    if own.outliers:
        verb = "is" if len(own.outliers) == 1 else "are"
        which = ", ".join(map(str, own.outliers))
        yield f"{len(own.outliers)} of {own.count} {verb} far from the median {own.median:.4g} s: iteration {which}"
    if abs(own.drift) > _WORTH_SAYING:
        word = "slower" if own.drift > 0 else "faster"
        yield f"they get {100 * abs(own.drift):.1f} % {word} from the first to the last"
    if result.reference is None or result.ratio is None or own.median <= 0:
        return
    by_median = result.reference.step_time_s / own.median
    if abs(by_median - result.ratio) > _WORTH_SAYING:
        yield f"by their median the ratio would be {by_median:.4f}"
