# SPDX-License-Identifier: Apache-2.0
"""Describes a log without a record: workload, scale and settings, from its lines, its folders, its name."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from llmb.logs.formats import BRIDGE_NAME, MEGATRON_NAME
from llmb.logs.samples import Samples
from llmb.results.description import NOTHING, SPLIT, Description, or_else
from llmb.results.launcher_config import config_near, described_by
from llmb.results.result import Override
from llmb.text.names import find_size, squash, squash_workload
from llmb.workload.bridge import BRIDGE, DTYPES, spelled, table_of, with_bridge
from llmb.workload.model import ModelShape
from llmb.workload.parameters import Parameter, in_name, unsaid
from llmb.workload.rows import Row
from llmb.workload.spec import Size, Workload

# Dtypes that name the scaling of fp8 are separate: fp8_cs (current scaling) is not the fp8 of older releases.
ALL_DTYPES = ("bf16", "fp8", "fp16", "fp32", "mxfp8", "nvfp4", "fp8_cs", "fp8_mx", "fp8_sc")
_NUMBERED = re.compile(r"(?<![a-z])(gpus|tp|pp|cp|vp|ep|etp|mbs|gbs|layers)(\d{1,9})")
_PROFILED = re.compile(r"(?:^|_)(?:nsys|profile)(?:_|$)")
_TRACED = re.compile(r"(?:^|_)nccltrace(?:_|$)")
_LOADS = re.compile(r"(?:^|_)load(?:_|$)")
_BRIDGE = re.compile(r"(?:^|_)bridge(\d[\d.]*)(?:_|$)")
_CURRENT = re.compile(r"(?:^|_)fp8current(?:_|$)")


def dtypes_of(workloads: Mapping[str, Workload]) -> re.Pattern[str]:
    """A pattern that splits a name at its first dtype."""
    rows = (row for workload in workloads.values() for size in workload.sizes.values() for row in size.rows)
    words = {*ALL_DTYPES, *(dtype for row in rows for dtype in row.dtype)}
    longest = sorted(words, key=lambda word: (-len(word), word))  # fp8_cs before fp8
    return re.compile(rf"(.+?)_({'|'.join(map(re.escape, longest))})((?:_.*)?)", re.DOTALL | re.IGNORECASE)


def of_name(name: str, workloads: Mapping[str, Workload], dtypes: re.Pattern[str]) -> Description:
    """The settings in an experiment's name; none where it does not begin with a workload."""
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


def _workload_and_size(head: str, workloads: Mapping[str, Workload]) -> tuple[str, str] | tuple[None, None]:
    """Workload and size in any spelling that is accepted; nothing where several fit.

    Releases from 25.12 omit the minor version, as in ``pretrain_llama3_70b``.
    """
    wanted = squash_workload(head)
    for name in (str, lambda key: re.sub(r"\.\d+$", "", key)):
        fits = [
            (key, size)
            for key, workload in workloads.items()
            if wanted.startswith(short := squash_workload(name(key)))
            for size in workload.sizes
            if wanted == short + squash(size)
        ]
        if fits:
            return fits[0] if len(fits) == 1 else (None, None)
    return None, None


_FOLDERS = 5  # above a log: <name>/<name>_<timestamp>/<name>/log-<name>.out, and those of the older launcher


def describe_log(
    path: Path, samples: Samples, workloads: Mapping[str, Workload], given: Description = NOTHING
) -> Description:
    """What the log at ``path`` is of.

    From ``given``, else the launcher's file beside it, its lines, its name, its folders, and its workload's table.
    Names of every release are known: ``pretrain_nemotron4_340b_fp8_gpus128_tp8_..._gbs512_389757``,
    ``pretrain_llama3.1_70b_fp8_256_nsys``, ``pretrain_llama31_...``, ``pretraining_nemotronh_...``, and the folders
    ``fp8/340b/128`` of release 24.11. A name that fits no workload, or several, is ignored.
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
    for found in (*(of_name(name, workloads, dtypes) for name in names), _of_folders(path, workloads)):
        if found is not NOTHING and _agree(named, found):
            named = or_else(named, found)
    beside = described_by(config_near(path), workloads)
    found = or_else(or_else(or_else(given, beside), logged), named)
    workload = workloads.get(found.workload or "")
    if found.framework is None and _is_of_bridge(samples, workload):
        found = replace(found, framework=BRIDGE)
    if found.framework == BRIDGE and found.dtype is not None:
        found = replace(found, dtype=spelled(found.dtype, DTYPES))
    return _completed(found, workloads)


def _is_of_bridge(samples: Samples, workload: Workload | None) -> bool:
    """Whether Megatron-Bridge printed the log: by its own lines, or by Megatron's for a workload that it can train."""
    is_trained = workload is not None and workload.bridge is not None  # NeMo prints other lines
    return samples.framework == BRIDGE_NAME or (is_trained and samples.framework == MEGATRON_NAME)


def overridden_by(given: Description, logged: Description) -> tuple[Override, ...]:
    """What is ``given`` where the log itself says something else."""
    names = [own.name for own in fields(Description) if own.name not in ("parameters", "unsaid")]
    pairs = [(name, getattr(given, name), getattr(logged, name)) for name in names]
    theirs = logged.parameters or {}
    pairs += [(name, value, theirs.get(name)) for name, value in (given.parameters or {}).items()]
    return tuple(Override(*pair) for pair in pairs if None not in pair[1:] and pair[1] != pair[2])


def _agree(first: Description, second: Description) -> bool:
    """Whether two names can be of the same run: a folder may have several."""
    pairs = ((getattr(first, name), getattr(second, name)) for name in ("workload", "size", "dtype", "gpus"))
    return all(one is None or other is None or one == other for one, other in pairs)


def _above(path: Path) -> Sequence[Path]:
    return list(path.absolute().parents)[:_FOLDERS]


def _cleaned(name: str) -> str:
    """The experiment's name in a log's, which launchers extend: ``log-<account>.<name>_389757_0.out.gz``."""
    name = re.sub(r"(?:\.(?:out|log|txt|err))?(?:\.gz)?$", "", name)
    return re.sub(r"^(?:log-|sbatch_)", "", name)


def _of_folders(path: Path, workloads: Mapping[str, Workload]) -> Description:
    """The settings in ``.../<dtype>/<size>/<GPUs>/...``, where only one workload has that size."""
    names = [folder.name.lower() for folder in reversed(_above(path))]
    for dtype, size, gpus in zip(names, names[1:], names[2:], strict=False):
        if dtype in ALL_DTYPES and re.fullmatch(r"[1-9]\d{0,6}", gpus):
            fits = [(key, name) for key in workloads if (name := find_size(size, workloads[key].sizes)) is not None]
            if len(fits) == 1:
                return Description(workload=fits[0][0], size=fits[0][1], dtype=dtype, gpus=int(gpus))
    return NOTHING


def _completed(found: Description, workloads: Mapping[str, Workload]) -> Description:
    """With the model's shape, and the batch and parallelism where the workload's table allows only one."""
    workload = workloads.get(found.workload or "")
    if workload is None:
        return found
    found = replace(found, untrained=not workload.is_training or None)
    size = workload.sizes.get(found.size or "")
    if size is None:
        return found
    size = _of_bridge(workload, found.size or "", size, found.release) if found.framework == BRIDGE else size
    rows = [row for row in size.rows if found.gpus in row.scales.counts and found.dtype in row.dtype]
    rows = [row for row in rows if found.gpu_type is None or row.fits(found.gpu_type, found.dtype or "")]
    layers = {row.layers for row in rows}
    model = found.model or (
        size.model and _with_layers(size.model, found.layers or (layers.pop() if len(layers) == 1 else None))
    )
    batches = {row.batch(found.gpus) for row in rows if not row.strong_scaling and found.gpus is not None}
    batch = batches.pop() if len(batches) == 1 else None
    length = model.seq_length if model is not None else None
    found = replace(found, model=model, seq_length=found.seq_length or length, gbs=found.gbs or batch)
    found = replace(found, **_parameters_of(found, workload.parameters_of(found.size or "")))
    if found.untrained:
        return found
    return replace(found, **_split_of(found, rows))


def _parameters_of(found: Description, known: Mapping[str, Parameter]) -> dict[str, Any]:
    """The values of the size's own parameters, as far as something says them, and the names of the others."""
    given = {name: value for name, value in (found.parameters or {}).items() if name in known}
    missing = unsaid(known, given)
    single = {name: own.default for name, own in known.items() if name not in (*given, *missing)}
    return {"parameters": {**single, **given}, "unsaid": missing}


def _of_bridge(workload: Workload, name: str, size: Size, release: str | None) -> Size:
    """``size`` with the rows of Megatron-Bridge's ``release``, the newest where that is unknown."""
    own = table_of(workload).sizes.get(name)
    if own is None:
        return size
    return with_bridge(workload, release if release in own.rows else next(iter(own.rows))).sizes[name]


def _split_of(found: Description, rows: Sequence[Row]) -> dict[str, Any]:
    """The unknown settings of parallelism in which all matching rows agree."""
    known = {name: value for name in SPLIT if (value := getattr(found, name)) is not None}
    has_experts = found.model is not None and found.model.moe is not None
    if "ep" in known and "tp" in known:
        known.setdefault("etp", known["tp"] if has_experts else 1)  # a name has it only where it is not tp
    if not has_experts:
        known |= {"ep": 1, "etp": 1}
    rows = [row for row in rows if found.gpus is not None and row.batch(found.gpus) == found.gbs]
    own = [{name: getattr(row, name) for name in SPLIT} for row in rows]
    own = [one | {"etp": one["etp"] or (one["tp"] if has_experts else 1)} for one in own]
    own = [one for one in own if all(one[name] == value for name, value in known.items())]
    # A name with any setting of parallelism has all of them: a missing `vp` is none.
    named = any(getattr(found, name) is not None for name in SPLIT)
    missing = [name for name in SPLIT if name not in known and not (name == "vp" and named)]
    values = {name: {one[name] for one in own} for name in missing}
    return known | {name: found.pop() for name, found in values.items() if len(found) == 1}


def _with_layers(model: ModelShape, layers: int | None) -> ModelShape:
    if layers is None or layers == model.layers or (model.pattern is not None and layers > model.layers):
        return model
    return replace(model, layers=layers, pattern=model.pattern and model.pattern[:layers])
