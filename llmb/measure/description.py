# SPDX-License-Identifier: Apache-2.0
"""The configuration of a run, by which results are compared, and the settings that a log shows."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Self

from llmb.contract.flops import Flops
from llmb.contract.job import Job
from llmb.contract.model import ModelShape
from llmb.contract.model_settings import trained_with
from llmb.contract.record import RunRecord
from llmb.contract.software import Software
from llmb.contract.switches import SettingValue
from llmb.plan.bridge_rows import NEMO

USUAL_FRAMEWORK = "nemo"
_USUAL_FP8, _USUAL_TOKENIZER = "delayed", "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A job without what may differ between its repeats. Fields are those of ``Job`` and
    ``Training``.

    A field is None if a log omits it, and a field of training also if no model is trained.
    """

    workload: str
    model_size: str
    dtype: str
    gpu_type: str | None
    #: In GPUs.
    scale: int
    #: In samples.
    gbs: int | None = None
    #: In tokens.
    seq_length: int | None = None
    num_layers: int | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    vp: int | None = None
    ep: int | None = None
    etp: int | None = None
    mbs: int | None = None
    gpus_per_node: int | None = None
    profile: bool = False
    image: str | None = None
    #: The recipe that scales dtype fp8, None for the delayed one.
    fp8: str | None = None
    #: None for the null tokenizer.
    tokenizer: str | None = None
    nccl_trace: bool = False
    #: The run also saved a checkpoint.
    saves: bool = False
    #: The run also loaded a checkpoint.
    loads: bool = False
    #: It was to be raised on each node first.
    vboost: bool | None = None
    #: ``nemo``, or ``bridge`` with the image ``release``.
    framework: str = "nemo"
    release: str | None = None
    #: The GPU type whose rows it used, None for its own.
    rows_of: str | None = None
    #: Settings that the user changed.
    dotted: Mapping[str, SettingValue] = field(default_factory=dict)
    #: The ``dotted`` settings that change the model or its dtype, besides ``gbs``, ``seq_length``
    #: and ``num_layers``.
    changes: Mapping[str, SettingValue] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    #: As it was at the submission, None if unknown.
    software: Software | None = None

    @property
    def key(self) -> Hashable:
        """Equal for equal configurations."""
        return _plain(self), *(tuple(sorted(mapping.items())) for mapping in _mappings(self))


_plain = attrgetter(*(key.name for key in fields(Configuration) if key.default_factory is not dict))
_mappings = attrgetter(*(key.name for key in fields(Configuration) if key.default_factory is dict))


def configuration_of(job: Job) -> Configuration:
    """The configuration of a recorded run."""
    switches = job.switches
    derived: dict[str, Any] = {
        "fp8": switches.fp8 if switches.fp8 != _USUAL_FP8 else None,
        "tokenizer": switches.tokenizer if switches.tokenizer != _USUAL_TOKENIZER else None,
        "nccl_trace": bool(switches.nccl_trace),
        "saves": bool(switches.save_checkpoint),
        "loads": switches.load_checkpoint is not None,
        "dotted": dict(job.dotted),
        "changes": dict(job.changes),
        "parameters": dict(job.parameters),
        "env": dict(job.env),
    }
    copied: dict[str, Any] = {}
    for setting in fields(Configuration):
        if setting.name not in derived:
            owner = job if hasattr(job, setting.name) else job.training
            copied[setting.name] = getattr(owner, setting.name, None)
    return Configuration(**copied, **derived)


def configuration_of_run(run: RunRecord) -> Configuration:
    """Return the configuration of a recorded run, with its software."""
    return replace(configuration_of(run.job), software=run.software)


SPLIT = ("tp", "pp", "cp", "vp", "ep", "etp", "mbs")  # settings of parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The settings of a run, as far as they are known. Fields are those of ``Configuration``."""

    workload: str | None = None
    size: str | None = None
    dtype: str | None = None
    gpu_type: str | None = None
    gpus: int | None = None
    gbs: int | None = None
    seq_length: int | None = None
    #: With the run's own layer count.
    model: ModelShape | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    vp: int | None = None
    ep: int | None = None
    etp: int | None = None
    mbs: int | None = None
    layers: int | None = None
    #: With Nsight Systems, which costs time.
    profiled: bool | None = None
    #: With an NCCL trace, which costs time.
    traced: bool | None = None
    #: It saves a checkpoint.
    saves: bool | None = None
    #: It loads a checkpoint.
    loads: bool | None = None
    #: The recipe that scales dtype fp8, None for the delayed one.
    fp8: str | None = None
    framework: str | None = None
    #: Of Megatron-Bridge's image.
    release: str | None = None
    #: Its size trains no model.
    untrained: bool | None = None
    #: The values of the parameters that the workload declares.
    parameters: Mapping[str, str] | None = None
    #: The parameters whose values are not known.
    unsaid: tuple[str, ...] = ()
    #: The operations of one sample by its plugin's formula, None for llmb's.
    flops: Flops | None = None
    #: Settings of the framework that the user changed, by dotted path.
    dotted: Mapping[str, SettingValue] | None = None
    #: Those of ``dotted`` that change the model or its dtype, as in ``Configuration``.
    changes: Mapping[str, SettingValue] | None = None
    #: The user's variables, by name.
    env: Mapping[str, str] | None = None
    #: The peak of ``dtype`` is not the run's.
    other_dtype: bool = False

    def with_dotted(self, overrides: "Description") -> Self:
        """Return what the run trained with its ``dotted`` settings.

        The user's ``overrides`` of batch and sequence come before them.
        """
        if not self.dotted or self.untrained:
            return self
        trained = trained_with(
            self.dotted, self.framework or NEMO, self.model, self.gbs, self.seq_length
        )
        return replace(
            self,
            model=trained.model,
            layers=trained.layers,
            gbs=overrides.gbs or trained.gbs,
            seq_length=overrides.seq_length or trained.seq_length,
            changes=trained.changes,
            other_dtype=trained.other_dtype,
        )

    def missing(self) -> tuple[str, ...]:
        """Return the unknown settings that a comparison needs, as in ``Identity.missing``."""
        needed = {
            "workload": (
                (self.model or self.changes or self.untrained) and self.workload and self.size
            ),
            "dtype": self.dtype,
            "scale": self.gpus,
            "gbs": self.gbs if not self.untrained and not self.changes else 0,
            "gpu_type": self.gpu_type,
        }
        return (*(name for name, value in needed.items() if value is None), *self.unsaid)

    def configuration(self) -> Configuration | None:
        """Return the configuration, or None if too little is known to compare it."""
        if (
            self.workload is None
            or self.size is None
            or self.dtype is None
            or self.gpus is None
            or self.unsaid
        ):
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
                env=self.env or {},
            )
        if not self.changes and None in (self.model, self.gbs, self.seq_length):
            return None
        equal_names = ("workload", "dtype", "gpu_type", "gbs", "seq_length", *SPLIT, "fp8")
        copied: dict[str, Any] = {name: getattr(self, name) for name in equal_names}
        return Configuration(
            **copied,
            model_size=self.size,
            scale=self.gpus,
            num_layers=self.layers if self.model is None else self.model.layers,
            profile=bool(self.profiled),
            nccl_trace=bool(self.traced),
            saves=bool(self.saves),
            loads=bool(self.loads),
            framework=self.framework or NEMO,
            release=self.release,
            dotted=self.dotted or {},
            changes=self.changes or {},
            parameters=self.parameters or {},
            env=self.env or {},
        )


NOTHING = Description()


def or_else(first: Description, second: Description) -> Description:
    """Return ``first`` with the settings of ``second`` that it lacks."""
    if NOTHING in (first, second):
        return second if first == NOTHING else first
    missing = {
        setting.name: getattr(second, setting.name)
        for setting in fields(first)
        if getattr(first, setting.name) is None
    }
    parameters = {**(second.parameters or {}), **(first.parameters or {})}
    return replace(first, **missing | {"parameters": parameters or None})
