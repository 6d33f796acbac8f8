# SPDX-License-Identifier: Apache-2.0
"""Workloads and published figures as rows for `list` and docs/workloads.md."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmb.contract.metrics import LOWER, STEP_TIME, MetricSpec
from llmb.contract.model import ModelShape
from llmb.contract.rows import ANY_GPU, Row
from llmb.contract.spec import NEMO, Size, Workload
from llmb.core import typed
from llmb.core.tables import Column

if TYPE_CHECKING:
    from llmb.plan.published import Figure
    from llmb.plan.recompute import Disagreement


def span(counts: Sequence[int]) -> str:
    """``16..2048`` for powers of two, else the counts themselves."""
    counts = sorted(set(counts))
    doubling = all(later == 2 * earlier for earlier, later in itertools.pairwise(counts))
    return (
        f"{counts[0]}..{counts[-1]}"
        if doubling and len(counts) > 2
        else ", ".join(map(str, counts))
    )


def first_to_last(numbers: Sequence[int]) -> str:
    """Return ``4`` if all are equal, else ``128..16``."""
    return str(numbers[0]) if len(set(numbers)) == 1 else f"{numbers[0]}..{numbers[-1]}"


SIZES = (
    Column(key="workload", heading="Workload", whole=True),
    Column(key="size", heading="Size", whole=True),
    Column(key="gpu_types", heading="GPU types", show=", ".join),
    Column(key="dtypes", heading="Dtypes", show=", ".join),
    Column(key="scales", heading="Scales", show=span),
)
METRICS = Column(
    key="metrics", heading="Metrics", show=lambda value: ", ".join(one["name"] for one in value)
)
PARAMETERS = Column(
    key="parameters",
    heading="Parameters",
    show=lambda value: ", ".join(f"{name}={own['default']}" for name, own in value.items()),
)
HERE = Column(key="here", heading="Runs here", show=lambda value: _here_in_words(value))
INSTALLED = Column(key="installed", heading="Installed", show=lambda value: "yes" if value else "")

_FRAMEWORK = (
    Column(key="framework", heading="Framework", whole=True),
    Column(key="release", heading="Image release", whole=True),
)
_CASES = (
    Column(key="size", heading="Size", whole=True),
    Column(key="gpu", heading="GPU", show=", ".join),
    Column(key="dtype", heading="Dtype", show=", ".join),
    Column(key="scales", heading="GPUs", show=span, whole=True),
)
_TRAINED = (
    Column(key="layers", heading="Layers", right=True, optional=True),
    *(
        Column(key=key, heading=key.upper(), right=True, optional=key in ("gbs", "dp"))
        for key in ("tp", "pp", "cp", "vp", "mbs", "gbs", "dp")
    ),
    Column(key="ga", heading="GA", show=first_to_last, right=True, optional=True),
    Column(key="scaling", heading="Scaling", optional=True),
)
_MEMORY = Column(key="memory_gb", heading="GB/GPU", show="{:g}".format, right=True, optional=True)

_EXPERTS = tuple(Column(key=key, heading=key.upper(), right=True) for key in ("ep", "etp"))


def _releases_in_words(releases: Mapping[str, Sequence[int]]) -> str:
    """Return ``25.04`` if all scales have one release, else ``25.05: 16; 25.04: 32..2048``."""
    scales = {
        name: "" if len(releases) == 1 else f": {span(counts)}" for name, counts in releases.items()
    }
    return "; ".join(f"{name}{counts_in_words}" for name, counts_in_words in scales.items())


RELEASES = Column(key="releases", heading="Release", show=_releases_in_words)


def rows_of(workload: Workload, framework: str | None = None) -> tuple[Column, ...]:
    """Return the columns for ``configurations``, those of training and experts only if needed."""
    metrics = (METRICS,) if workload.metrics else ()
    trained = _TRAINED if workload.is_training else ()
    if any(
        size.model is not None and size.model.moe is not None for size in workload.sizes.values()
    ):
        at = [column.key for column in trained].index("mbs")
        trained = (*trained[:at], *_EXPERTS, *trained[at:])
    is_alone = framework == workload.framework or not any(workload.brought())
    shown = () if is_alone else _FRAMEWORK
    return (*_CASES, *shown, *metrics, *trained, _MEMORY)


def sizes_of(workloads: Iterable[Workload], fmt: str) -> tuple[Column, ...]:
    """Return the columns for ``sizes``. A table has no space for metrics and parameters.

    ``list -w`` shows these.
    """
    listed = list(workloads)
    metrics = (METRICS,) if fmt != "table" and any(workload.metrics for workload in listed) else ()
    parameters = (
        (PARAMETERS,) if fmt != "table" and any(workload.parameters for workload in listed) else ()
    )
    return (*SIZES, *metrics, *parameters)


def _here_in_words(cluster: Mapping[str, Any]) -> str:
    """Return ``yes``, ``up to 64 GPUs`` if the cluster has no more, or why not."""
    if not cluster["runs"]:
        return f"no: {cluster['why']}"
    return "yes" if cluster["most_gpus"] is None else f"up to {cluster['most_gpus']} GPUs"


def on_this_cluster(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of SIZES with ``here``, for people: dtypes and scales of this cluster alone.

    Scales are those that a job can have here, or all of the GPU type if it can have none.
    """
    return [
        {
            **row,
            "dtypes": row["here"]["dtypes"] or None,
            "scales": row["here"]["scales"] or row["here"]["all_scales"] or None,
        }
        for row in rows
    ]


def declared(workload: Workload) -> Iterator[str]:
    """Yield the declared metrics and parameters: ``busbw (GB/s)``, ``message_size=16M``."""
    if workload.metrics:
        yield "metrics: " + ", ".join(_metric_in_words(spec) for spec in workload.metrics)
    for name, parameter in workload.parameters.items():
        yield f"parameter {name}: default {parameter.default}" + (
            f", one of {', '.join(parameter.choices)}" if parameter.choices else ""
        )


def _metric_in_words(spec: MetricSpec) -> str:
    facts = [spec.unit] if spec.unit else []
    facts += ["lower is better"] if spec.better == LOWER else []
    return f"{spec.name} ({', '.join(facts)})" if facts else spec.name


def _declared(workload: Workload, size: Size) -> dict[str, Any]:
    """The declared metrics of a size, its headline first, and its parameters, as data."""
    specs = {spec.name: spec for spec in workload.metrics}
    names = workload.parameters if size.parameters is None else size.parameters
    return {
        "metrics": [typed.to_data(specs[name]) for name in size.metrics or specs],
        "parameters": {name: typed.to_data(workload.parameters[name]) for name in names},
    }


def sizes(
    workloads: Iterable[Workload],
    framework: str | None = None,
    release: str | None = None,
    gpu_type: str | None = None,
) -> list[dict[str, Any]]:
    """A row of SIZES for each size of each workload, with what its rows of all frameworks have.

    ``framework``, ``release`` and ``gpu_type`` as for ``configurations``. A size without such a row
    is omitted.
    """
    by_size: dict[tuple[str, str], dict[str, Any]] = {}
    for workload in workloads:
        for row in configurations(workload, framework, release, gpu_type):
            size = by_size.setdefault(
                (workload.key, row["size"]),
                {
                    "workload": workload.key,
                    "size": row["size"],
                    "gpu_types": [],
                    "dtypes": [],
                    "scales": [],
                    **_declared(workload, workload.sizes[row["size"]]),
                },
            )
            for key, values in (
                ("gpu_types", row["gpu"]),
                ("dtypes", row["dtype"]),
                ("scales", row["scales"]),
            ):
                size[key] += [value for value in values if value not in size[key]]
            size["scales"].sort()
    return list(by_size.values())


def configurations(
    workload: Workload,
    framework: str | None = None,
    release: str | None = None,
    gpu_type: str | None = None,
) -> list[dict[str, Any]]:
    """Return a row for each row of a workload's tables.

    ``framework``, ``release`` (of its image) and ``gpu_type`` select rows. Fields of training
    are None without a model. ``gbs`` and ``dp`` (data parallel ways) are rules for N GPUs. ``ga``
    has the gradient accumulation of each scale.
    """
    rows: list[tuple[str, str | None, str, Row]] = [
        (workload.framework, None, name, row)
        for name, size in workload.sizes.items()
        for row in size.rows
    ]
    rows += [
        (brought.name, image_release, name, row)
        for brought, sizes in workload.brought()
        for name, by_release in sizes.items()
        for image_release, release_rows in by_release.items()
        for row in release_rows
    ]
    return [
        {
            "size": name,
            "framework": kind,
            "release": image_release,
            "gpu": list(row.gpu),
            "dtype": list(row.dtype),
            "scales": list(row.scales.counts),
            "memory_gb": row.memory_gb,
            "time_limit_minutes": row.time_limit_minutes,
            **_training(row, workload.sizes[name].model),
            **_declared(workload, workload.sizes[name]),
        }
        for kind, image_release, name, row in rows
        if framework in (None, kind)
        and release in (None, image_release)
        and (gpu_type is None or {gpu_type, ANY_GPU} & {*row.gpu})
    ]


_OF_TRAINING = (
    *("layers", "tp", "pp", "cp", "vp", "ep", "etp", "mbs", "gbs", "dp", "ga"),
    *("scaling", "cuda_graphs", "userbuffers", "releases"),
)


def _training(row: Row, model: ModelShape | None) -> dict[str, Any]:
    """The fields of training, all None without a ``model``."""
    if model is None or row.mbs is None or row.gbs is None:
        return dict.fromkeys(_OF_TRAINING)
    ways, mbs = row.tp * row.pp * row.cp, row.mbs
    return {
        "layers": row.layers or model.layers,
        "tp": row.tp,
        "pp": row.pp,
        "cp": row.cp,
        "vp": row.vp,
        "ep": row.ep,
        "etp": row.etp,
        "mbs": mbs,
        "gbs": row.gbs.text,
        "dp": "N" if ways == 1 else f"N/{ways}",
        "ga": [
            (row.batch(count) or 0) // (mbs * (count // ways or 1)) for count in row.scales.counts
        ],
        "scaling": "strong" if row.strong_scaling else "weak",
        "cuda_graphs": row.cuda_graphs,
        "userbuffers": row.userbuffers,
        "releases": {name: list(scales.counts) for name, scales in row.releases.items()},
    }


FIGURES = (
    Column(key="workload", heading="Workload"),
    Column(key="release", heading="Release"),
    Column(key="model_size", heading="Size"),
    Column(key="gpu_type", heading="GPU"),
    Column(key="dtype", heading="Dtype"),
    Column(key="scale", heading="GPUs", right=True),
    Column(key="gbs", heading="GBS", right=True, optional=True),
    Column(
        key="parameters",
        heading="Parameters",
        show=lambda own: " ".join(f"{k}={v}" for k, v in own.items()),
        optional=True,
    ),
    Column(key="framework", heading="Framework", optional=True),
    Column(key="window", heading="Window", optional=True),
    Column(key="steps", heading="Steps", right=True, optional=True),
    Column(key="metric", heading="Metric"),
    Column(key="value", heading="Value", show="{:g}".format, right=True),
    Column(key="unit", heading="Unit"),
    Column(key="step_time_s", heading="Step time (s)", show="{:g}".format, right=True),
    Column(
        key="tokens_per_second", heading="Tokens/s", show="{:.0f}".format, right=True, optional=True
    ),
    Column(
        key="mfu",
        heading="MFU %",
        show=lambda value: f"{100 * value:.2f}",
        right=True,
        optional=True,
    ),
    Column(key="flops_convention", heading="FLOPs formula", optional=True),
    Column(
        key="days_per_1t_tokens",
        heading="Days for 1T",
        show="{:g}".format,
        right=True,
        optional=True,
    ),
)


def figure_columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return the columns of a table of figures, without empty ones."""
    omitted = {
        column.key for column in FIGURES if rows and not any(row[column.key] for row in rows)
    }
    omitted |= (
        {"metric", "value", "unit"}
        if all(row["metric"] == STEP_TIME for row in rows)
        else {"step_time_s"}
    )
    omitted |= {"framework"} if all(row["framework"] == NEMO for row in rows) else set()
    return [column for column in FIGURES if column.key not in omitted]


def figures(published: Iterable[Figure]) -> list[dict[str, Any]]:
    """A row of FIGURES, with further keys for programs, for each published figure, as printed."""
    return [
        {
            **typed.to_data(figure),
            "window": str(figure.window),
            "metric": figure.metric.name,
            "unit": figure.metric.unit,
            "step_time_s": figure.step_time_s,
        }
        for figure in published
    ]


CHECKED = (
    *FIGURES[:6],
    Column(key="quantity", heading="Quantity"),
    Column(key="printed", heading="Printed", show="{:.6g}".format, right=True),
    Column(key="recomputed", heading="Recomputed", show="{:.6g}".format, right=True),
    Column(key="note", heading="Note"),
)


def checked(disagreements: Iterable[Disagreement]) -> list[dict[str, Any]]:
    """A row of CHECKED for each printed value that does not follow from its step time."""
    return [
        {
            **figures([disagreement.figure])[0],
            "quantity": disagreement.quantity,
            "printed": disagreement.printed,
            "recomputed": disagreement.recomputed,
            "tolerance": disagreement.tolerance,
            "note": disagreement.note,
        }
        for disagreement in disagreements
    ]
