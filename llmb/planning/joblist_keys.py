# SPDX-License-Identifier: Apache-2.0
"""The keys of a YAML job list: of a section, its tasks, ``defaults`` and ``overrides``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from llmb.config.slurm import OWN_OPTIONS
from llmb.errors import KeyFaultError
from llmb.workload import launch_variables
from llmb.workload.launch_variables import Used
from llmb.workload.switches import NAMES, PARAMS, Count, Switches, is_dotted, merged
from llmb.workload.variables import LISTED, JobEnvironment

_KEY_PARAMS = ("max_steps", "gbs")  # parameters that are keys as well


def _not_empty(values: tuple[object, ...]) -> None:
    if not values:
        raise ValueError("is empty; omit it, or list at least one")


def _has_text(value: str) -> None:
    if not value.strip():
        raise ValueError("is empty; omit it, or name a value")


Counts = Annotated[tuple[Count, ...], _not_empty]
Texts = Annotated[tuple[str, ...], _not_empty]
Settings = tuple[str | float | bool | None, ...]


class ParamName(str):
    """The name of a parameter: one of llmb's, a dotted path of the framework's settings, or one that the workload
    declares, whose values are text."""

    __slots__ = ()

    @staticmethod
    def type_of(name: str) -> object:
        """The type of its value. Names and texts are checked when jobs are planned, with the workload."""
        return Counts if name in PARAMS else Settings if is_dotted(name) else Texts


Text = Annotated[str, _has_text]
Params = dict[ParamName, tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys(Switches):
    """The keys that a section, a task, ``defaults`` and ``overrides`` have in common."""

    max_steps: Count | None = None
    gbs: Count | None = None
    framework: Literal["nemo", "bridge"] | None = None
    release: str | None = None
    partition: Text | None = None
    account: Text | None = None
    qos: Text | None = None
    reservation: Text | None = None
    nodelist: Text | None = None
    exclude: Text | None = None
    nice: int | None = None
    segment: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides(Keys):
    """A section's ``defaults`` or a task's ``overrides``."""

    env: JobEnvironment = field(default_factory=dict)
    params: Params = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one in launch_variables.split(self.env, LISTED, of_list=True)[1]:
            own = self.params[ParamName(one.sets)] if one.sets in self.params else getattr(self, one.sets, None)
            if own not in (None, one.value, (one.value,)):
                message = f"{one.name} is {one.value}, but {one.sets} is set too"
                raise KeyFaultError(message, "env", one.name, hint="omit one of them", code="variable-conflict")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEntry(Keys):
    """A task; a key that is None is that of its section."""

    dtypes: Annotated[tuple[str, ...], _not_empty] | None = None
    scales: Counts | None = None
    repeats: Count | None = None
    add_profile: bool | None = None
    profile: bool | None = None
    proxy: bool | None = None
    overrides: Overrides = field(default_factory=Overrides)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section(TaskEntry):
    """A section; without ``tasks`` its own dtypes and scales are one task."""

    defaults: Overrides = field(default_factory=Overrides)
    tasks: Any = None  # read one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What ``Keys`` set: the variables of a job, its parameters, switches and options of sbatch, and its profile.

    ``used``: the variables of NVIDIA's launch scripts in ``env`` that are used as settings, and are not among ``env``.
    """

    env: Mapping[str, str]
    params: Mapping[str, tuple[Any, ...]]
    switches: Switches
    slurm: Mapping[str, str]
    profile: bool | None
    used: tuple[Used, ...]


def layer_of(keys: Keys) -> Layer:
    """What ``keys`` set; ``params`` override the keys of the same name."""
    params: dict[str, tuple[Any, ...]] = {
        name: (value,) for name in _KEY_PARAMS if (value := getattr(keys, name)) is not None
    }
    slurm = {name: str(value) for name in OWN_OPTIONS if (value := getattr(keys, name)) is not None}
    profile = getattr(keys, "profile", None)
    if not isinstance(keys, Overrides):
        return Layer(env={}, params=params, switches=keys, slurm=slurm, profile=profile, used=())
    rest, used = launch_variables.split(keys.env, LISTED, of_list=True)
    values = {one.sets: one.value for one in used}
    params |= {name: (value,) for name, value in values.items() if name in PARAMS}
    given = {name: value for name, value in values.items() if name in NAMES}
    slurm |= {name: str(value) for name, value in values.items() if name in OWN_OPTIONS}
    return Layer(
        env={name: str(value) for name, value in rest.items()},
        params={**params, **{str(name): own for name, own in keys.params.items()}},
        switches=merged((keys, Switches(**given))) if given else keys,  # type: ignore[arg-type]
        slurm=slurm,
        profile=bool(values["profile"]) if "profile" in values else None,
        used=tuple(used),
    )
