# SPDX-License-Identifier: Apache-2.0
"""Divides a job's GPUs, batch, layers, heads and experts. A remainder is an error. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from llmb.contract.gpus import CPU, gpus_in_words
from llmb.contract.job import Training
from llmb.contract.model import ModelShape
from llmb.contract.rows import Row
from llmb.contract.settings import Settings
from llmb.contract.spec import Size
from llmb.errors import UsageError
from llmb.plan.limits import ClusterLimits

CHANGE = "change the scale or one of them: --set NAME=N, in a list params"


def training_of(settings: Settings, size: Size, row: Row) -> Training:
    """The numbers of training. Raises UsageError for a division with a remainder."""
    shape, label = size.trained_model, f"{settings.label} at {gpus_in_words(settings.scale)}"
    if row.seq_length is not None:
        shape = replace(shape, seq_length=row.seq_length)
    assert row.mbs is not None, "Size refuses such rows"
    assert row.gbs is not None
    tp, pp, cp = settings.tp or row.tp, settings.pp or row.pp, settings.cp or row.cp
    mbs, ep = settings.mbs or row.mbs, settings.ep or row.ep
    etp = settings.etp or row.etp or (tp if shape.moe is not None else 1)
    ways = f"tp·pp·cp = {tp}·{pp}·{cp}"
    dp = divide(settings.scale, tp * pp * cp, f"{label}: the scale", ways, key="scale tp pp cp")
    gbs = settings.gbs or row.gbs.batch(settings.scale)
    if gbs is None:
        raise UsageError(
            f"{label}: the global batch {row.gbs.text} is not a whole number",
            hint="choose another scale, or --set gbs=N",
            code="batch-not-whole",
            key="scale",
        )
    batch = f"{label}: the global batch {gbs}"
    ga = divide(gbs, mbs * dp, batch, f"mbs·dp = {mbs}·{dp}", key="gbs mbs scale")
    model = _model(shape, settings.num_layers or row.layers, label)
    return Training(
        model=model,
        tp=tp,
        pp=pp,
        cp=cp,
        vp=settings.vp or row.vp,
        ep=ep,
        etp=etp,
        dp=dp,
        mbs=mbs,
        gbs=gbs,
        ga=ga,
        seq_length=model.seq_length,
        num_layers=model.layers,
        learning_rate=size.learning_rate,
    )


def nodes_of(settings: Settings, size: Size, limits: ClusterLimits) -> tuple[int, int]:
    """The nodes and the GPUs on each. Raises UsageError."""
    scale, chosen = settings.scale, settings.gpus_per_node
    per_node = chosen or limits.gpus_per_node
    key = "gpus_per_node scale" if chosen else "scale"
    if limits.one_machine:
        if size.whole_nodes and limits.rows != CPU and scale > per_node:
            message = f"{settings.label}: {scale} GPUs are more than the {per_node} of one machine"
            hint = f"choose fewer; --gpus-per-node {scale}, where this machine has as many"
            raise UsageError(message, hint=hint, code="machine-too-small", key=key, value=scale)
        return 1, scale
    if limits.requested is not None and limits.rows != CPU and per_node > limits.requested:
        message = (
            f"{per_node} ranks per node, but the cluster's gres requests {limits.requested} GPUs"
            " per node"
        )
        hint = (
            f"choose at most {limits.requested}, or set 'gres' in cluster_config.yaml to what a"
            " node has"
        )
        message = f"{settings.label}: gpus_per_node: {message}"
        raise UsageError(
            message, hint=hint, code="gres-exceeded", key="gpus_per_node", value=per_node
        )
    if scale % per_node == 0:
        return scale // per_node, per_node
    if not size.whole_nodes and scale < per_node:
        return 1, scale
    hint = f"choose a multiple of {per_node} GPUs"
    if chosen:
        fitting = [count for count in range(1, limits.gpus_per_node + 1) if scale % count == 0]
        hint = f"choose a number of GPUs per node that divides {scale}: {alternatives(fitting)}"
    words = "1 GPU does" if scale == 1 else f"{scale} GPUs do"
    message = f"{settings.label}: {words} not fill whole nodes of {per_node}"
    raise UsageError(message, hint=hint, code="nodes-not-full", key=key, value=per_node)


def _model(model: ModelShape, layers: int | None, label: str) -> ModelShape:
    """Return the shape with the first ``layers`` layers. Raises UsageError."""
    if layers is None or layers == model.layers:
        return model
    if model.pattern is None:
        return replace(model, layers=layers)
    if layers > model.layers:
        message = f"{label}: a hybrid of {model.layers} layers has no pattern for {layers}"
        raise UsageError(
            message, hint="choose fewer", code="pattern-too-short", key="num_layers", value=layers
        )
    return replace(model, layers=layers, pattern=model.pattern[:layers])


def divide(
    number: int, by: int, quantity: str, divisor: str, hint: str = CHANGE, *, key: str
) -> int:
    """Return ``number`` / ``by``. Raises UsageError for a remainder.

    ``quantity`` and ``divisor`` name both in the message.
    """
    if number % by:
        message = f"{quantity} is not a multiple of {divisor} = {by}"
        raise UsageError(message, hint=hint, code="not-divisible", key=key, value=by)
    return number // by


def check_splits(training: Training, size: Size, row: Row, label: str) -> None:
    """Raise UsageError for layers, heads, states or a sequence that do not split evenly.

    The framework would refuse them too, but only after the job has waited for its nodes.
    """
    vp = training.vp or 1
    if vp > 1 and training.pp == 1:
        raise UsageError(
            f"{label}: vp {vp} needs a pipeline, pp is 1",
            hint="--set vp=1",
            code="vp-without-pp",
            key="vp pp",
            value=vp,
        )
    if size.pipeline_layout:
        _check_layout(training, size, row, label)
    else:
        _check_layers(training, size, vp, label)
    if vp > 1:
        hint = (
            f"--set gbs=N, a multiple of mbs·dp·pp = {training.mbs * training.dp * training.pp}; or"
            " --set vp=1"
        )
        steps = f"{label}: with vp > 1 the gradient accumulation {training.ga}"
        divide(training.ga, training.pp, steps, "pp", hint, key="gbs mbs pp vp")
    _check_widths(training, label)
    _check_experts(training, label)
    for name, ways in (("cp", training.cp), ("vp", vp)):
        if ways > 1 and training.model.pattern is not None:
            message = (
                f"{label}: a hybrid of Mamba and attention layers cannot be split by {name}, which"
                f" is {ways}"
            )
            raise UsageError(
                message, hint=f"--set {name}=1", code="hybrid-split", key=name, value=ways
            )


def _check_layers(training: Training, size: Size, vp: int, label: str) -> None:
    counted = training.num_layers + size.pipeline_extra
    extra = f" ({counted} with embedding and loss)" if size.pipeline_extra else ""
    fitting = alternatives([ways for ways in range(1, counted + 1) if counted % ways == 0])
    divide(
        counted,
        training.pp * vp,
        f"{label}: {training.num_layers} layers{extra}",
        f"pp·vp = {training.pp}·{vp}",
        f"choose pp and vp whose product is {fitting}",
        key="num_layers pp vp",
    )


def _check_layout(training: Training, size: Size, row: Row, label: str) -> None:
    """Raise UsageError unless the job has the stages that the framework's list of them is for."""
    stages = (training.pp, training.vp or 1, training.num_layers)
    listed = (row.pp, row.vp or 1, row.layers or size.trained_model.layers)
    if stages != listed:
        message = (
            f"{label}: NVIDIA divides the layers by a list of stages for pp {listed[0]}, vp"
            f" {listed[1]} and {listed[2]} layers, not for {stages[0]}, {stages[1]} and {stages[2]}"
        )
        raise UsageError(
            message,
            hint="omit pp, vp and num_layers",
            code="layout-fixed",
            key="pp vp num_layers",
            value=training.pp,
        )


def _check_widths(training: Training, label: str) -> None:
    """Check what tensor and context parallelism split: heads, MLP and the sequence.

    Context parallelism halves a rank's part.
    """
    model, length = training.model, f"{label}: the sequence length {training.seq_length}"
    widths = {
        "attention heads": model.heads,
        "query groups": model.kv_groups,
        "units of the MLP": model.ffn,
    }
    if model.mamba is not None and model.pattern is not None:
        widths |= {"Mamba heads": model.mamba.heads, "Mamba groups": model.mamba.groups}
    fitting = alternatives(
        [ways for ways in range(1, model.heads + 1) if not any(n % ways for n in widths.values())]
    )
    for quantity, count in widths.items():
        hint = f"choose a tp of {fitting}: --set tp=N, in a list params"
        divide(count, training.tp, f"{label}: {count} {quantity}", "tp", hint, key="tp")
    # each rank has a piece from the front and one from the back, so that all have equal work
    if training.cp > 1:
        divide(
            training.seq_length,
            2 * training.cp,
            length,
            f"2·cp = 2·{training.cp}",
            "choose a smaller cp",
            key="cp",
        )
    if training.tp > 1:
        divide(
            training.seq_length,
            training.tp * training.cp,
            length,
            f"tp·cp = {training.tp}·{training.cp}",
            "choose a smaller tp or cp",
            key="tp cp",
        )


def _check_experts(training: Training, label: str) -> None:
    """Raise UsageError for experts that ep, etp and the GPUs of a stage do not split evenly.

    Megatron core builds the groups of experts from all GPUs of a stage: ep and etp are independent
    of cp and dp.
    """
    moe, ep, etp = training.model.moe, training.ep, training.etp
    if moe is None:
        for name, ways in (("ep", ep), ("etp", etp)):
            if ways > 1:
                message = (
                    f"{label}: {name} {ways} needs a model with experts, and this one is dense"
                )
                raise UsageError(
                    message, hint=f"--set {name}=1", code="no-experts", key=name, value=ways
                )
        return
    fitting = alternatives([ways for ways in range(1, moe.experts + 1) if moe.experts % ways == 0])
    hint = f"choose an ep of {fitting}: --set ep=N, in a list params"
    divide(moe.experts, ep, f"{label}: {moe.experts} experts", "ep", hint, key="ep")
    width = moe.ffn or training.model.ffn
    hint = "choose a smaller etp: --set etp=N, in a list params; by default it is tp"
    divide(width, etp, f"{label}: {width} units of an expert", "etp", hint, key="etp")
    stage = training.dp * training.tp * training.cp
    quantity = f"{label}: {stage} GPUs of a pipeline stage"
    divide(stage, ep * etp, quantity, f"ep·etp = {ep}·{etp}", key="scale pp ep etp")


def alternatives(numbers: Sequence[int]) -> str:
    """``1, 2, 4 or 8``."""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last
