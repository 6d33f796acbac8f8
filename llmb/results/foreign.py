# SPDX-License-Identifier: Apache-2.0
"""Describes a log without a record: its workload, scale and settings, from its lines, its name and its folders."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from llmb.logs.formats import MEGATRON_NAME
from llmb.logs.samples import Samples
from llmb.results.result import Configuration, Override
from llmb.text.names import find_size, squash, squash_workload
from llmb.workload.bridge import BRIDGE, DTYPES, NEMO, spelled, table_of, with_bridge
from llmb.workload.flops import Flops
from llmb.workload.model import ModelShape
from llmb.workload.parameters import Parameter, values_of
from llmb.workload.rows import Row
from llmb.workload.spec import Size, Workload

_FOLDERS = 5  # above a log: <name>/<name>_<timestamp>/<name>/log-<name>.out, and those of the older launcher
# Dtypes that name the scaling of fp8 are separate: fp8_cs (current scaling) is not the fp8 of older releases.
_DTYPES = ("bf16", "fp8", "fp16", "fp32", "mxfp8", "nvfp4", "fp8_cs", "fp8_mx", "fp8_sc")
_NUMBERED = re.compile(r"(?<![a-z])(gpus|tp|pp|cp|vp|ep|etp|mbs|gbs|layers)(\d{1,9})")
_PROFILED = re.compile(r"(?:^|_)(?:nsys|profile)(?:_|$)")
_TRACED = re.compile(r"(?:^|_)nccltrace(?:_|$)")
_LOADS = re.compile(r"(?:^|_)load(?:_|$)")
_SPLIT = ("tp", "pp", "cp", "vp", "ep", "mbs")
_BRIDGE = re.compile(r"(?:^|_)bridge(\d[\d.]*)(?:_|$)")
_CURRENT = re.compile(r"(?:^|_)fp8current(?:_|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The settings of a run, as far as they are known; fields are those of ``Configuration``.

    ``profiled``, ``traced``: with Nsight Systems or an NCCL trace, which cost time; ``saves``, ``loads``: a checkpoint;
    ``fp8``: how it scales, unless delayed; ``release``: of Megatron-Bridge's image. ``model`` has the run's own layer
    count; ``flops``: of one sample of it by its plugin's own formula, None for llmb's. ``untrained``: of a size that
    trains no model; ``parameters``: of the workload's own, by name.
    """

    workload: str | None = None
    size: str | None = None
    dtype: str | None = None
    gpu_type: str | None = None
    gpus: int | None = None
    gbs: int | None = None
    seq_length: int | None = None
    model: ModelShape | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    vp: int | None = None
    ep: int | None = None
    mbs: int | None = None
    layers: int | None = None
    profiled: bool | None = None
    traced: bool | None = None
    saves: bool | None = None
    loads: bool | None = None
    fp8: str | None = None
    framework: str | None = None
    release: str | None = None
    untrained: bool | None = None
    parameters: Mapping[str, str] | None = None
    flops: Flops | None = None

    def missing(self) -> tuple[str, ...]:
        """What a comparison needs and is unknown: the names in ``Identity.missing``."""
        needed = {
            "workload": (self.model or self.untrained) and self.workload and self.size,
            "dtype": self.dtype,
            "scale": self.gpus,
            "gbs": self.gbs if not self.untrained else 0,
            "gpu_type": self.gpu_type,
        }
        return tuple(name for name, value in needed.items() if value is None)

    def configuration(self) -> Configuration | None:
        """The configuration, None where too little is known to compare it."""
        if self.workload is None or self.size is None or self.dtype is None or self.gpus is None:
            return None
        if self.untrained:
            return Configuration(
                workload=self.workload,
                model_size=self.size,
                dtype=self.dtype,
                gpu_type=self.gpu_type,
                scale=self.gpus,
                profile=bool(self.profiled),
                parameters=self.parameters or {},
            )
        if self.model is None or self.gbs is None or self.seq_length is None:
            return None
        same = ("workload", "dtype", "gpu_type", "gbs", "seq_length", *_SPLIT, "fp8")
        copied: dict[str, Any] = {name: getattr(self, name) for name in same}
        return Configuration(
            **copied,
            model_size=self.size,
            scale=self.gpus,
            num_layers=self.model.layers,
            profile=bool(self.profiled),
            nccl_trace=bool(self.traced),
            saves=bool(self.saves),
            loads=bool(self.loads),
            framework=self.framework or NEMO,
            release=self.release,
        )


NOTHING = Description()


def describe_log(
    path: Path, samples: Samples, workloads: Mapping[str, Workload], given: Description = NOTHING
) -> Description:
    """What the log at ``path`` is of: from ``given``, else its lines, its name, its folders, and its workload's table.

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
    dtypes = _dtypes(workloads)
    named = NOTHING
    for found in (*(_of_name(name, workloads, dtypes) for name in names), _of_folders(path, workloads)):
        if found is not NOTHING and _agree(named, found):
            named = _or_else(named, found)
    found = _or_else(_or_else(given, logged), named)
    workload = workloads.get(found.workload or "")
    if found.framework is None and workload is not None and workload.bridge and samples.framework == MEGATRON_NAME:
        found = replace(found, framework=BRIDGE)  # NeMo prints other lines
    if found.framework == BRIDGE and found.dtype is not None:
        found = replace(found, dtype=spelled(found.dtype, DTYPES))
    return _completed(found, workloads)


def overridden(given: Description, logged: Description) -> tuple[Override, ...]:
    """What is ``given`` where the log itself says something else."""
    pairs = ((own.name, getattr(given, own.name), getattr(logged, own.name)) for own in fields(Description))
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


def _or_else(first: Description, second: Description) -> Description:
    if NOTHING in (first, second):
        return second if first == NOTHING else first
    missing = {own.name: getattr(second, own.name) for own in fields(first) if getattr(first, own.name) is None}
    return replace(first, **missing)


def _dtypes(workloads: Mapping[str, Workload]) -> re.Pattern[str]:
    """A pattern that splits a name at its first dtype."""
    rows = (row for workload in workloads.values() for size in workload.sizes.values() for row in size.rows)
    words = {*_DTYPES, *(dtype for row in rows for dtype in row.dtype)}
    longest = sorted(words, key=lambda word: (-len(word), word))  # fp8_cs before fp8
    return re.compile(rf"(.+?)_({'|'.join(map(re.escape, longest))})((?:_.*)?)", re.DOTALL)


def _of_name(name: str, workloads: Mapping[str, Workload], dtypes: re.Pattern[str]) -> Description:
    """The settings in an experiment's name; none where it does not begin with a workload."""
    parts = dtypes.fullmatch(re.sub(r"^.*?(?=pretrain)", "", name.lower()))
    key, size = _workload_and_size(parts[1], workloads) if parts else (None, None)
    if parts is None or key is None:
        return NOTHING
    dtype, tail = parts[2], parts[3]
    numbers = {word: int(number) for word, number in _NUMBERED.findall(tail)}
    split: dict[str, Any] = {name: numbers.get(name) for name in _SPLIT}
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
        parameters=_parameters(tail, workloads[key].parameters) or None,
    )


def _parameters(tail: str, known: Mapping[str, Parameter]) -> dict[str, str]:
    """The values of the workload's own parameters in the lower-case end of a name: ``_message_size16m``."""
    found = {}
    for name, own in known.items():
        if match := re.search(rf"(?:^|_){re.escape(name.lower())}([^_]+)(?:_|$)", tail):
            choices = {choice.lower(): choice for choice in (*own.choices, own.default)}
            found[name] = choices.get(match[1], match[1])
    return found


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


def _of_folders(path: Path, workloads: Mapping[str, Workload]) -> Description:
    """The settings in ``.../<dtype>/<size>/<GPUs>/...``, where only one workload has that size."""
    names = [folder.name.lower() for folder in reversed(_above(path))]
    for dtype, size, gpus in zip(names, names[1:], names[2:], strict=False):
        if dtype in _DTYPES and re.fullmatch(r"[1-9]\d{0,6}", gpus):
            fits = [(key, name) for key in workloads if (name := find_size(size, workloads[key].sizes)) is not None]
            if len(fits) == 1:
                return Description(workload=fits[0][0], size=fits[0][1], dtype=dtype, gpus=int(gpus))
    return NOTHING


def _completed(found: Description, workloads: Mapping[str, Workload]) -> Description:
    """With the model's shape, and the batch and parallelism where the workload's table allows only one."""
    workload = workloads.get(found.workload or "")
    size = workload.sizes.get(found.size or "") if workload else None
    if workload is None or size is None:
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
    found = replace(
        found,
        model=model,
        seq_length=found.seq_length or length,
        gbs=found.gbs or batch,
    )
    if size.model is None and workload is not None:
        return replace(found, untrained=True, parameters=values_of(workload.parameters, found.parameters or {}))
    return replace(found, **_split_of(found, rows))


def _of_bridge(workload: Workload, name: str, size: Size, release: str | None) -> Size:
    """``size`` with the rows of Megatron-Bridge's ``release``, the newest where that is unknown."""
    own = table_of(workload).sizes.get(name)
    if own is None:
        return size
    return with_bridge(workload, release if release in own.rows else next(iter(own.rows))).sizes[name]


def _split_of(found: Description, rows: Sequence[Row]) -> dict[str, Any]:
    """The unknown settings of parallelism in which all matching rows agree."""
    known = {name: value for name in _SPLIT if (value := getattr(found, name)) is not None}
    rows = [row for row in rows if found.gpus is not None and row.batch(found.gpus) == found.gbs]
    rows = [row for row in rows if all(getattr(row, name) == value for name, value in known.items())]
    # A name with any setting of parallelism has all of them: a missing `vp` is none.
    missing = [name for name in _SPLIT if name not in known and not (name == "vp" and known)]
    values = {name: {getattr(row, name) for row in rows} for name in missing}
    return {name: own.pop() for name, own in values.items() if len(own) == 1}


def _with_layers(model: ModelShape, layers: int | None) -> ModelShape:
    if layers is None or layers == model.layers or (model.pattern is not None and layers > model.layers):
        return model
    return replace(model, layers=layers, pattern=model.pattern and model.pattern[:layers])
