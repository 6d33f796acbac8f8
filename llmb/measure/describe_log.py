# SPDX-License-Identifier: Apache-2.0
"""Describe a log without a record, from its lines, its folders, its name and its workload."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmb.contract.formats import BRIDGE_NAME, MEGATRON_NAME
from llmb.contract.log_settings import LogSettings
from llmb.contract.model import ModelShape
from llmb.contract.model_settings import Trained, trained_with
from llmb.contract.parameters import Parameter, in_name, unsaid
from llmb.contract.rows import Row
from llmb.contract.samples import Samples
from llmb.contract.settings import COMPARED, MAPPINGS, NOTHING, SPLIT, Settings
from llmb.contract.spec import BRIDGE, NEMO, Size, Workload
from llmb.core.names import find_named_sizes, find_size, find_workload
from llmb.core.secret_patterns import without_secrets
from llmb.errors import LlmbError
from llmb.measure.result import Override

# Dtypes that name the scaling of fp8 are separate: fp8_cs (current scaling) is not the fp8 of older
# releases, which is fp8_ds (delayed scaling) in NVIDIA's names.
_FP8_DS = "fp8_ds"
ALL_DTYPES = (
    "bf16",
    "fp8",
    "fp16",
    "fp32",
    "mxfp8",
    "nvfp4",
    "fp8_cs",
    "fp8_mx",
    "fp8_sc",
    _FP8_DS,
)
_NUMBERED = re.compile(r"(?<![a-z])(gpus|tp|pp|cp|vp|ep|etp|mbs|gbs|layers)(\d{1,9})")
_PROFILED = re.compile(r"(?:^|_)(?:nsys|profile)(?:_|$)")
_TRACED = re.compile(r"(?:^|_)nccltrace(?:_|$)")
_STRAGGLERS = re.compile(r"(?:^|_)stragglers(?:_|$)")
_LOADS = re.compile(r"(?:^|_)load(?:_|$)")
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


def of_name(name: str, workloads: Mapping[str, Workload], dtypes: re.Pattern[str]) -> Settings:
    """Return the settings in an experiment's name, none if it does not begin with a workload."""
    parts = dtypes.fullmatch(name)
    key, size = _workload_and_size(parts[1], workloads) if parts else (None, None)
    if key is None:  # launchers write an account before it
        parts = dtypes.fullmatch(re.sub(r"^.*?(?=pretrain)", "", name, flags=re.IGNORECASE))
        key, size = _workload_and_size(parts[1], workloads) if parts else (None, None)
    if parts is None or key is None or size is None:
        return NOTHING
    workload = workloads[key]
    parameters, tail = in_name(parts[3], workload.parameters_of(size))
    dtype, tail = parts[2].lower(), tail.lower()
    numbers = {word: int(number) for word, number in _NUMBERED.findall(tail)}
    split: dict[str, Any] = {name: numbers.get(name) for name in SPLIT}
    bare = re.match(r"_([1-9]\d{0,4})(?:_|$)", tail)  # the older releases' `_fp8_256`
    framework, release = _framework_and_release(tail, workload)
    return Settings(
        workload=key,
        model_size=size,
        dtype=dtype,
        scale=numbers.get("gpus") or (int(bare[1]) if bare else 0),
        gbs=numbers.get("gbs") or None,
        **split,
        num_layers=numbers.get("layers") or None,
        profile=bool(_PROFILED.search(tail)),
        nccl_trace=bool(_TRACED.search(tail)) or None,
        stragglers=bool(_STRAGGLERS.search(tail)) or None,
        loads=bool(_LOADS.search(tail)),
        fp8="current" if _CURRENT.search(tail) else None,
        framework=framework,
        release=release,
        parameters=parameters,
    )


def _framework_and_release(tail: str, workload: Workload) -> tuple[str, str] | tuple[str, None]:
    """Return the framework and its release in the rest of a name, as in ``bridge26.02.01``."""
    names = "|".join(
        re.escape(framework.name)
        for framework in workload.frameworks.values()
        if framework.releases
    )
    match = re.search(rf"(?:^|_)({names})(\d[\d.]*)(?:_|$)", tail) if names else None
    return (match[1], match[2]) if match is not None else ("", None)


def _workload_and_size(
    head: str, workloads: Mapping[str, Workload]
) -> tuple[str, str] | tuple[None, None]:
    """Return workload and size in any accepted spelling, nothing if several fit.

    Releases from 25.12 omit the minor version, as in ``pretrain_llama3_70b``.
    """
    for name in (str, lambda key: re.sub(r"\.\d+$", "", key)):
        fits = [
            (key, size)
            for key, workload in workloads.items()
            for _, size in find_named_sizes(head, {name(key): workload.sizes})
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
    overrides: Settings = NOTHING,
    beside: LogSettings | None = None,
) -> Settings:
    """Return the settings of the log at ``path``, as far as they are known.

    ``overrides`` come first, then a plugin's of a file ``beside`` it, then its lines, its name, its
    folders, and its workload's table. Names of every release are known:
    ``pretrain_nemotron4_340b_fp8_gpus128_tp8_..._gbs512_389757``,
    ``pretrain_llama3.1_70b_fp8_256_nsys``, ``pretrain_llama31_...``, ``pretraining_nemotronh_...``,
    and the folders ``fp8/340b/128`` of release 24.11. A name that fits no workload, or several, is
    ignored.
    """
    return describe(settings_named(path, workloads), samples, workloads, overrides, beside)


def settings_named(path: Path, workloads: Mapping[str, Workload]) -> Settings:
    """Return what the names of a log and of its folders say, as ``describe_log`` reads them."""
    names = dict.fromkeys([_cleaned(path.name), *(folder.name for folder in _above(path))])
    dtypes = dtypes_of(workloads)
    named = NOTHING
    for settings in (
        *(of_name(name, workloads, dtypes) for name in names),
        _of_folders(path, workloads),
    ):
        if settings is not NOTHING and _agree(named, settings):
            named = named.or_else(settings)
    return named


def describe(
    named: Settings,
    samples: Samples,
    workloads: Mapping[str, Workload],
    overrides: Settings = NOTHING,
    beside: LogSettings | None = None,
) -> Settings:
    """Return as ``describe_log`` the settings of a log whose names say ``named``."""
    kinds = {event.kind for event in samples.checkpoints}
    logged = Settings(
        gbs=samples.gbs or samples.environment.gbs,
        scale=samples.environment.world_size or 0,
        seq_length=samples.environment.seq_length,
        saves="save" in kinds,
        loads="load" in kinds and samples.last == 0,
    )
    settings = overrides.or_else(settings_beside(beside, workloads)).or_else(logged).or_else(named)
    if beside is not None and not settings.dtype:
        settings = replace(settings, dtype=beside.dtype or "")
    workload = workloads.get(settings.workload)
    if not settings.framework and _is_of_bridge(samples, workload):
        settings = replace(settings, framework=BRIDGE)
    if settings.dtype == _FP8_DS and settings.framework != BRIDGE:
        settings = replace(settings, dtype="fp8")
    if workload is None:
        return settings
    framework, size = workload.frameworks.get(settings.framework), settings.model_size
    if framework is not None and size in workload.sizes:
        dtype, gpu = settings.dtype, settings.gpu_type or ""
        dtype = framework.spelled(dtype, framework.dtypes, workload, size, gpu, settings.scale)
        settings = replace(settings, dtype=dtype)
    return _completed(settings, workload)


def settings_beside(beside: LogSettings | None, workloads: Mapping[str, Workload]) -> Settings:
    """Return what a plugin found in a file beside a log.

    It has no workload and no size that ``workloads`` lack, and no word such as fp8 of
    Megatron-Bridge, which may mean several dtypes.
    """
    if beside is None:
        return NOTHING
    key = size = None
    with suppress(LlmbError):  # no plugin offers it
        if beside.workload is not None:
            key = find_workload(beside.workload, workloads)
            sizes = workloads[key].sizes
            size = find_size(beside.size or "", sizes)
            size = (sizes[size].proxy or size) if beside.proxy and size is not None else size
    frameworks = next((workload.frameworks for workload in workloads.values()), {})
    framework = frameworks.get(beside.framework or "")
    meanings = () if framework is None else framework.spellings.get(beside.dtype or "", ())
    return Settings(
        workload=key or "",
        model_size=size or "",
        dtype="" if len(meanings) > 1 else beside.dtype or "",
        gpu_type=beside.gpu_type,
        scale=beside.gpus or 0,
        gbs=beside.gbs,
        framework=beside.framework or "",
        release=beside.release,
        parameters=beside.parameters,
        dotted=without_secrets(beside.dotted),
        env=without_secrets(beside.env),
    )


def _is_of_bridge(samples: Samples, workload: Workload | None) -> bool:
    """Return True if Megatron-Bridge printed the log.

    It has lines of its own, and prints Megatron's for a workload that it can train.
    """
    is_trained = workload is not None and workload.bridge is not None  # NeMo prints other lines
    return samples.framework == BRIDGE_NAME or (is_trained and samples.framework == MEGATRON_NAME)


def overridden_by(overrides: Settings, logged: Settings) -> tuple[Override, ...]:
    """Return the ``overrides`` that contradict the log."""
    pairs = [
        (name, getattr(overrides, name), getattr(logged, name))
        for name in COMPARED
        if name not in MAPPINGS
    ]
    pairs += [
        (name, value, logged.parameters.get(name)) for name, value in overrides.parameters.items()
    ]
    return tuple(Override(*pair) for pair in pairs if all(pair[1:]) and pair[1] != pair[2])


def _agree(first: Settings, second: Settings) -> bool:
    """Return True if two names can be of the same run: a folder may have several."""
    pairs = (
        (getattr(first, name), getattr(second, name))
        for name in ("workload", "model_size", "dtype", "scale")
    )
    return all(not all(pair) or pair[0] == pair[1] for pair in pairs)


def _above(path: Path) -> Sequence[Path]:
    return list(path.absolute().parents)[:_FOLDERS]


def _cleaned(name: str) -> str:
    """Return the experiment's name in a log's: ``log-<account>.<name>_389757_0.out.gz``."""
    name = re.sub(r"(?:\.(?:out|log|txt|err))?(?:\.gz)?$", "", name)
    return re.sub(r"^(?:log-|sbatch_)", "", name)


def _of_folders(path: Path, workloads: Mapping[str, Workload]) -> Settings:
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
                return Settings(
                    workload=fits[0][0], model_size=fits[0][1], dtype=dtype, scale=int(gpus)
                )
    return NOTHING


def _completed(settings: Settings, workload: Workload) -> Settings:
    """Add parameters, and layers, batch and parallelism if the workload's table has only one."""
    size = _size_of(settings, workload)
    if size is None:
        return settings
    rows = [
        row
        for row in size.rows
        if settings.scale in row.scales.counts
        and settings.dtype in row.dtype
        and (settings.gpu_type is None or row.fits(settings.gpu_type, settings.dtype))
    ]
    layers = {row.layers for row in rows}
    batches = {row.batch(settings.scale) for row in rows if not row.strong_scaling}
    settings = replace(
        settings,
        num_layers=settings.num_layers or (layers.pop() if len(layers) == 1 else None),
        gbs=settings.gbs or (batches.pop() if len(batches) == 1 else None),
        parameters=_parameters_of(settings, workload.parameters_of(settings.model_size)),
    )
    model = model_of(settings, workload)
    if model is None:
        return settings
    return replace(
        settings,
        num_layers=model.layers,
        seq_length=model.seq_length,
        **_split_of(settings, rows, has_experts=model.moe is not None),
    )


def _parameters_of(settings: Settings, parameters: Mapping[str, Parameter]) -> dict[str, str]:
    """Return the known values of the size's own parameters."""
    values = {name: value for name, value in settings.parameters.items() if name in parameters}
    missing = unsaid(parameters, values)
    single = {
        name: parameter.default
        for name, parameter in parameters.items()
        if name not in (*values, *missing)
    }
    return {**single, **values}


def model_of(settings: Settings, workload: Workload | None) -> ModelShape | None:
    """Return the model of a size, with the run's own layers and sequence. None if it has none."""
    size = None if workload is None else _size_of(settings, workload)
    model = None if size is None else size.model
    if model is None:
        return None
    model = _with_layers(model, settings.num_layers)
    return replace(model, seq_length=settings.seq_length or model.seq_length)


def trained_by(settings: Settings, workload: Workload | None) -> Trained:
    """Return what the run trained with its ``dotted`` settings."""
    is_training = workload is None or workload.is_training
    return trained_with(
        settings.dotted if is_training else {},
        settings.framework or (NEMO if workload is None else workload.framework),
        model_of(settings, workload),
        settings.gbs,
        settings.seq_length,
    )


def missing(settings: Settings, workload: Workload | None) -> tuple[str, ...]:
    """Return the unknown settings that a comparison needs, as in ``Identity.missing``."""
    if workload is None or settings.model_size not in workload.sizes:
        parameters, is_known = dict[str, Parameter](), False
    else:
        parameters, is_known = workload.parameters_of(settings.model_size), True
    needs_batch = not settings.changes and (workload is None or workload.is_training)
    needed = {
        "workload": is_known,
        "dtype": settings.dtype,
        "scale": settings.scale,
        "gbs": settings.gbs or not needs_batch,
        "gpu_type": settings.gpu_type,
    }
    return (
        *(name for name, value in needed.items() if not value),
        *unsaid(parameters, settings.parameters),
    )


def complete(settings: Settings, workload: Workload | None) -> Settings | None:
    """Return the settings as of a job, or None if too little is known to compare them."""
    if workload is None or set(missing(settings, workload)) - {"gpu_type"}:
        return None
    if not workload.is_training:
        values = {name: getattr(settings, name) for name in _OF_ALL}
        return Settings(**values, framework=workload.framework, nccl_trace=False)
    name = settings.framework or workload.framework
    return replace(settings, framework=name, nccl_trace=bool(settings.nccl_trace))


# what a run that trains no model has
_OF_ALL = (
    *("workload", "model_size", "dtype", "gpu_type", "scale"),
    *("profile", "parameters", "env"),
)


def _size_of(settings: Settings, workload: Workload) -> Size | None:
    """Return the size with the rows of its framework. An unknown release is the newest."""
    name, framework = settings.model_size, workload.frameworks.get(settings.framework)
    rows = None if framework is None else framework.rows_for(workload).get(name)
    if framework is None or not rows or name not in workload.sizes:
        return workload.sizes.get(name)
    release = settings.release if settings.release in rows else None
    release = release or next(iter(rows))
    return framework.of_release(workload, release).sizes[name]


def _split_of(settings: Settings, rows: Sequence[Row], *, has_experts: bool) -> dict[str, Any]:
    """Return the unknown settings of parallelism in which all matching rows agree."""
    degrees = {name: value for name in SPLIT if (value := getattr(settings, name)) is not None}
    is_named = bool(degrees)
    if "ep" in degrees and "tp" in degrees:
        # a name has it only where it is not tp
        degrees.setdefault("etp", degrees["tp"] if has_experts else 1)
    if not has_experts:
        degrees |= {"ep": 1, "etp": 1}
    splits = [
        {name: getattr(row, name) for name in SPLIT}
        for row in rows
        if row.batch(settings.scale) == settings.gbs
    ]
    splits = [
        split | {"etp": split["etp"] or (split["tp"] if has_experts else 1)} for split in splits
    ]
    splits = [
        split for split in splits if all(split[name] == value for name, value in degrees.items())
    ]
    # A name with any setting of parallelism has all of them: a missing `vp` is none.
    unknown = [name for name in SPLIT if name not in degrees and not (name == "vp" and is_named)]
    values = {name: {split[name] for split in splits} for name in unknown}
    return degrees | {name: choices.pop() for name, choices in values.items() if len(choices) == 1}


def _with_layers(model: ModelShape, layers: int | None) -> ModelShape:
    if (
        layers is None
        or layers == model.layers
        or (model.pattern is not None and layers > model.layers)
    ):
        return model
    return replace(model, layers=layers, pattern=model.pattern and model.pattern[:layers])
