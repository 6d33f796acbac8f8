# SPDX-License-Identifier: Apache-2.0
"""Describe a log without a record, from its lines, its folders, its name and its workload."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from llmb.contract.formats import BRIDGE_NAME, MEGATRON_NAME
from llmb.contract.log_settings import LogSettings
from llmb.contract.model import ModelShape
from llmb.contract.parameters import Parameter, in_name, unsaid
from llmb.contract.rows import Row
from llmb.contract.samples import Samples
from llmb.contract.spec import Size, Workload
from llmb.core.names import find_size, squash, squash_workload
from llmb.measure.description import NOTHING, SPLIT, Description, or_else
from llmb.measure.launcher_config import config_near, described_by
from llmb.measure.result import Override
from llmb.plan.bridge_rows import BRIDGE, DTYPES, spelled, table_of, with_bridge

# Dtypes that name the scaling of fp8 are separate: fp8_cs (current scaling) is not the fp8 of older
# releases.
ALL_DTYPES = ("bf16", "fp8", "fp16", "fp32", "mxfp8", "nvfp4", "fp8_cs", "fp8_mx", "fp8_sc")
_NUMBERED = re.compile(r"(?<![a-z])(gpus|tp|pp|cp|vp|ep|etp|mbs|gbs|layers)(\d{1,9})")
_PROFILED = re.compile(r"(?:^|_)(?:nsys|profile)(?:_|$)")
_TRACED = re.compile(r"(?:^|_)nccltrace(?:_|$)")
_LOADS = re.compile(r"(?:^|_)load(?:_|$)")
_BRIDGE = re.compile(r"(?:^|_)bridge(\d[\d.]*)(?:_|$)")
_CURRENT = re.compile(r"(?:^|_)fp8current(?:_|$)")


def dtypes_of(workloads: Mapping[str, Workload]) -> re.Pattern[str]:
    """Return a pattern that splits a name at its first dtype."""
    rows = (
        row
        for workload in workloads.values()
        for size in workload.sizes.values()
        for row in size.rows
    )
    words = {*ALL_DTYPES, *(dtype for row in rows for dtype in row.dtype)}
    longest = sorted(words, key=lambda word: (-len(word), word))  # fp8_cs before fp8
    return re.compile(
        rf"(.+?)_({'|'.join(map(re.escape, longest))})((?:_.*)?)", re.DOTALL | re.IGNORECASE
    )


def of_name(name: str, workloads: Mapping[str, Workload], dtypes: re.Pattern[str]) -> Description:
    """Return the settings in an experiment's name, none if it does not begin with a workload."""
    parts = dtypes.fullmatch(name)
    key, size = _workload_and_size(parts[1], workloads) if parts else (None, None)
    if key is None:  # launchers write an account before it
        parts = dtypes.fullmatch(re.sub(r"^.*?(?=pretrain)", "", name, flags=re.IGNORECASE))
        key, size = _workload_and_size(parts[1], workloads) if parts else (None, None)
    if parts is None or key is None or size is None:
        return NOTHING
    parameters, tail = in_name(parts[3], workloads[key].parameters_of(size))
    dtype, tail = parts[2].lower(), tail.lower()
    numbers = {word: int(number) for word, number in _NUMBERED.findall(tail)}
    split: dict[str, Any] = {name: numbers.get(name) for name in SPLIT}
    bare = re.match(r"_([1-9]\d{0,4})(?:_|$)", tail)  # the older releases' `_fp8_256`
    return Description(
        workload=key,
        size=size,
        dtype=dtype,
        gpus=numbers.get("gpus") or (int(bare[1]) if bare else None) or None,
        gbs=numbers.get("gbs") or None,
        **split,
        layers=numbers.get("layers") or None,
        profiled=bool(_PROFILED.search(tail)) or None,
        traced=bool(_TRACED.search(tail)) or None,
        loads=bool(_LOADS.search(tail)) or None,
        fp8="current" if _CURRENT.search(tail) else None,
        framework=BRIDGE if (bridge := _BRIDGE.search(tail)) else None,
        release=bridge[1] if bridge else None,
        parameters=parameters or None,
    )


def _workload_and_size(
    head: str, workloads: Mapping[str, Workload]
) -> tuple[str, str] | tuple[None, None]:
    """Return workload and size in any accepted spelling, nothing if several fit.

    Releases from 25.12 omit the minor version, as in ``pretrain_llama3_70b``.
    """
    squashed = squash_workload(head)
    for name in (str, lambda key: re.sub(r"\.\d+$", "", key)):
        fits = [
            (key, size)
            for key, workload in workloads.items()
            if squashed.startswith(short := squash_workload(name(key)))
            for size in workload.sizes
            if squashed == short + squash(size)
        ]
        if fits:
            return fits[0] if len(fits) == 1 else (None, None)
    return None, None


# above a log: <name>/<name>_<timestamp>/<name>/log-<name>.out, and those of the older launcher
_FOLDERS = 5


def describe_log(
    path: Path,
    samples: Samples,
    workloads: Mapping[str, Workload],
    overrides: Description = NOTHING,
    settings: LogSettings | None = None,
) -> Description:
    """Describe the log at ``path``.

    ``overrides`` come first, then a plugin's ``settings``, then the launcher's file beside it, its
    lines, its name, its folders, and its workload's table. Names of every release are known:
    ``pretrain_nemotron4_340b_fp8_gpus128_tp8_..._gbs512_389757``,
    ``pretrain_llama3.1_70b_fp8_256_nsys``, ``pretrain_llama31_...``, ``pretraining_nemotronh_...``,
    and the folders ``fp8/340b/128`` of release 24.11. A name that fits no workload, or several, is
    ignored.
    """
    kinds = {event.kind for event in samples.checkpoints}
    logged = Description(
        gbs=samples.gbs or samples.environment.gbs,
        gpus=samples.environment.world_size,
        seq_length=samples.environment.seq_length,
        saves="save" in kinds or None,
        loads=("load" in kinds and samples.last == 0) or None,
    )
    names = dict.fromkeys([_cleaned(path.name), *(folder.name for folder in _above(path))])
    dtypes = dtypes_of(workloads)
    named = NOTHING
    for description in (
        *(of_name(name, workloads, dtypes) for name in names),
        _of_folders(path, workloads),
    ):
        if description is not NOTHING and _agree(named, description):
            named = or_else(named, description)
    beside = or_else(of_settings(settings), described_by(config_near(path), workloads))
    description = or_else(or_else(or_else(overrides, beside), logged), named)
    workload = workloads.get(description.workload or "")
    if description.framework is None and _is_of_bridge(samples, workload):
        description = replace(description, framework=BRIDGE)
    if description.framework == BRIDGE and description.dtype is not None:
        description = replace(description, dtype=spelled(description.dtype, DTYPES))
    return _completed(description, workloads)


def of_settings(settings: LogSettings | None) -> Description:
    """Return what a plugin says about a log's run."""
    if settings is None:
        return NOTHING
    values: dict[str, Any] = {
        name: getattr(settings, name)
        for name in ("workload", "size", "dtype", "gpu_type", "gpus", "gbs")
    }
    return Description(
        **values,
        framework=settings.framework,
        release=settings.release,
        parameters=settings.parameters or None,
        env=settings.env or None,
    )


def _is_of_bridge(samples: Samples, workload: Workload | None) -> bool:
    """Return True if Megatron-Bridge printed the log.

    It has lines of its own, and prints Megatron's for a workload that it can train.
    """
    is_trained = workload is not None and workload.bridge is not None  # NeMo prints other lines
    return samples.framework == BRIDGE_NAME or (is_trained and samples.framework == MEGATRON_NAME)


def overridden_by(overrides: Description, logged: Description) -> tuple[Override, ...]:
    """Return the ``overrides`` that contradict the log."""
    names = [
        setting.name
        for setting in fields(Description)
        if setting.name not in ("parameters", "unsaid", "dotted", "changes", "env", "other_dtype")
    ]
    pairs = [(name, getattr(overrides, name), getattr(logged, name)) for name in names]
    logged_parameters = logged.parameters or {}
    pairs += [
        (name, value, logged_parameters.get(name))
        for name, value in (overrides.parameters or {}).items()
    ]
    return tuple(Override(*pair) for pair in pairs if None not in pair[1:] and pair[1] != pair[2])


def _agree(first: Description, second: Description) -> bool:
    """Return True if two names can be of the same run: a folder may have several."""
    pairs = (
        (getattr(first, name), getattr(second, name))
        for name in ("workload", "size", "dtype", "gpus")
    )
    return all(
        value is None or second_value is None or value == second_value
        for value, second_value in pairs
    )


def _above(path: Path) -> Sequence[Path]:
    return list(path.absolute().parents)[:_FOLDERS]


def _cleaned(name: str) -> str:
    """Return the experiment's name in a log's: ``log-<account>.<name>_389757_0.out.gz``."""
    name = re.sub(r"(?:\.(?:out|log|txt|err))?(?:\.gz)?$", "", name)
    return re.sub(r"^(?:log-|sbatch_)", "", name)


def _of_folders(path: Path, workloads: Mapping[str, Workload]) -> Description:
    """Return the settings in ``.../<dtype>/<size>/<GPUs>/...`` if one workload has that size."""
    names = [folder.name.lower() for folder in reversed(_above(path))]
    for dtype, size, gpus in zip(names, names[1:], names[2:], strict=False):
        if dtype in ALL_DTYPES and re.fullmatch(r"[1-9]\d{0,6}", gpus):
            fits = [
                (key, name)
                for key in workloads
                if (name := find_size(size, workloads[key].sizes)) is not None
            ]
            if len(fits) == 1:
                return Description(
                    workload=fits[0][0], size=fits[0][1], dtype=dtype, gpus=int(gpus)
                )
    return NOTHING


def _completed(description: Description, workloads: Mapping[str, Workload]) -> Description:
    """Add the model's shape and, if the workload's table allows only one, batch and parallelism."""
    workload = workloads.get(description.workload or "")
    if workload is None:
        return description
    description = replace(description, untrained=not workload.is_training or None)
    size = workload.sizes.get(description.size or "")
    if size is None:
        return description
    size = (
        _of_bridge(workload, description.size or "", size, description.release)
        if description.framework == BRIDGE
        else size
    )
    rows = [
        row
        for row in size.rows
        if description.gpus in row.scales.counts and description.dtype in row.dtype
    ]
    rows = [
        row
        for row in rows
        if description.gpu_type is None or row.fits(description.gpu_type, description.dtype or "")
    ]
    layers = {row.layers for row in rows}
    model = description.model or (
        size.model
        and _with_layers(
            size.model, description.layers or (layers.pop() if len(layers) == 1 else None)
        )
    )
    batches = {
        row.batch(description.gpus)
        for row in rows
        if not row.strong_scaling and description.gpus is not None
    }
    batch = batches.pop() if len(batches) == 1 else None
    length = model.seq_length if model is not None else None
    description = replace(
        description,
        model=model,
        seq_length=description.seq_length or length,
        gbs=description.gbs or batch,
    )
    description = replace(
        description, **_parameters_of(description, workload.parameters_of(description.size or ""))
    )
    if description.untrained:
        return description
    return replace(description, **_split_of(description, rows))


def _parameters_of(description: Description, parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the known values of the size's own parameters, and the names of the others."""
    values = {
        name: value for name, value in (description.parameters or {}).items() if name in parameters
    }
    missing = unsaid(parameters, values)
    single = {
        name: parameter.default
        for name, parameter in parameters.items()
        if name not in (*values, *missing)
    }
    return {"parameters": {**single, **values}, "unsaid": missing}


def _of_bridge(workload: Workload, name: str, size: Size, release: str | None) -> Size:
    """Return ``size`` with the rows of Megatron-Bridge's ``release`` (unknown: the newest)."""
    table = table_of(workload).sizes.get(name)
    if table is None:
        return size
    return with_bridge(
        workload, release if release in table.rows else next(iter(table.rows))
    ).sizes[name]


def _split_of(description: Description, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the unknown settings of parallelism in which all matching rows agree."""
    settings = {name: value for name in SPLIT if (value := getattr(description, name)) is not None}
    has_experts = description.model is not None and description.model.moe is not None
    if "ep" in settings and "tp" in settings:
        # a name has it only where it is not tp
        settings.setdefault("etp", settings["tp"] if has_experts else 1)
    if not has_experts:
        settings |= {"ep": 1, "etp": 1}
    rows = [
        row
        for row in rows
        if description.gpus is not None and row.batch(description.gpus) == description.gbs
    ]
    splits = [{name: getattr(row, name) for name in SPLIT} for row in rows]
    splits = [
        split | {"etp": split["etp"] or (split["tp"] if has_experts else 1)} for split in splits
    ]
    splits = [
        split for split in splits if all(split[name] == value for name, value in settings.items())
    ]
    # A name with any setting of parallelism has all of them: a missing `vp` is none.
    named = any(getattr(description, name) is not None for name in SPLIT)
    missing = [name for name in SPLIT if name not in settings and not (name == "vp" and named)]
    values = {name: {split[name] for split in splits} for name in missing}
    return settings | {name: choices.pop() for name, choices in values.items() if len(choices) == 1}


def _with_layers(model: ModelShape, layers: int | None) -> ModelShape:
    if (
        layers is None
        or layers == model.layers
        or (model.pattern is not None and layers > model.layers)
    ):
        return model
    return replace(model, layers=layers, pattern=model.pattern and model.pattern[:layers])
