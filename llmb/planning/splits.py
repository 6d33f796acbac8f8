# SPDX-License-Identifier: Apache-2.0
"""Whether a job's numbers split: what the framework would refuse only after the job has waited for its nodes."""

from collections.abc import Sequence

from llmb.errors import UsageError
from llmb.runs.job import Job
from llmb.workload.spec import Size

CHANGE = "change the scale or one of them: --set NAME=N, in a list params"


def divide(number: int, by: int, what: str, divisor: str, hint: str = CHANGE) -> int:
    """``number`` / ``by``. Raises UsageError unless it is whole; ``what`` and ``divisor`` are for its message."""
    if number % by:
        raise UsageError(f"{what} is not a multiple of {divisor} = {by}", hint=hint)
    return number // by


def check_splits(job: Job, size: Size) -> None:
    """Raise UsageError for layers, heads, states or a sequence that the job's parallelism does not split evenly."""
    label = f"{job.workload} {job.model_size}"
    _check_layers(job, size, label)
    _check_widths(job, label)
    if job.model.pattern is not None:
        _check_hybrid(job, label)


def _check_layers(job: Job, size: Size, label: str) -> None:
    vp = job.vp or 1
    if vp > 1 and job.pp == 1:
        raise UsageError(f"{label}: vp {vp} needs a pipeline, pp is 1", hint="--set vp=1")
    counted = job.num_layers + size.pipeline_extra
    extra = f" ({counted} with embedding and loss)" if size.pipeline_extra else ""
    fitting = in_words([ways for ways in range(1, counted + 1) if counted % ways == 0])
    split = f"{label}: {job.num_layers} layers{extra}"
    divide(counted, job.pp * vp, split, f"pp·vp = {job.pp}·{vp}", f"choose pp and vp whose product is {fitting}")
    if vp > 1:
        hint = f"--set gbs=N, a multiple of mbs·dp·pp = {job.mbs * job.dp * job.pp}; or --set vp=1"
        divide(job.ga, job.pp, f"{label}: with vp > 1 the gradient accumulation {job.ga}", "pp", hint)


def _check_widths(job: Job, label: str) -> None:
    """Tensor parallelism splits heads and MLP, with it the sequence; context parallelism halves each rank's part."""
    model, length = job.model, f"{label}: the sequence length {job.seq_length}"
    widths = {"attention heads": model.heads, "query groups": model.kv_groups, "units of the MLP": model.ffn}
    if model.mamba is not None and model.pattern is not None:
        widths |= {"Mamba heads": model.mamba.heads, "Mamba groups": model.mamba.groups}
    fitting = in_words([ways for ways in range(1, model.heads + 1) if not any(n % ways for n in widths.values())])
    for what, count in widths.items():
        divide(
            count, job.tp, f"{label}: {count} {what}", "tp", f"choose a tp of {fitting}: --set tp=N, in a list params"
        )
    if job.cp > 1:  # each rank takes a piece from the front and one from the back, so that all have equal work
        divide(job.seq_length, 2 * job.cp, length, f"2·cp = 2·{job.cp}", "choose a smaller cp")
    if job.tp > 1:
        divide(job.seq_length, job.tp * job.cp, length, f"tp·cp = {job.tp}·{job.cp}", "choose a smaller tp or cp")


def _check_hybrid(job: Job, label: str) -> None:
    for name, ways in (("cp", job.cp), ("vp", job.vp or 1)):
        if ways > 1:
            message = f"{label}: a hybrid of Mamba and attention layers cannot be split by {name}, which is {ways}"
            raise UsageError(message, hint=f"--set {name}=1")


def in_words(numbers: Sequence[int]) -> str:
    """``1, 2, 4 or 8``."""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last
