# SPDX-License-Identifier: Apache-2.0
"""The keys of a YAML job list: of a section, its tasks, ``defaults`` and ``overrides``."""

from collections.abc import Iterable, Mapping
from dataclasses import field, fields, replace
from typing import Annotated, Any

from llmb.contract.launch_variable import LISTED, Variables
from llmb.contract.sbatch import OWN_OPTIONS
from llmb.contract.settings import MAPPINGS, Settings
from llmb.contract.switches import PARAMS, Count, SettingValue, Switches, is_dotted
from llmb.contract.variables import check_name, check_values
from llmb.core.scalars import check_own
from llmb.core.typed import INTERNAL
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError
from llmb.plan.launch_variables import Used, split


def _not_empty(values: tuple[object, ...]) -> None:
    if not values:
        raise ValueError("is empty; omit it, or list at least one")


def _has_text(value: str) -> None:
    if not value.strip():
        raise ValueError("is empty; omit it, or name a value")


Counts = Annotated[tuple[Count, ...], _not_empty]
Texts = Annotated[tuple[str, ...], _not_empty]
DottedValues = Annotated[tuple[Annotated[SettingValue, check_own], ...], _not_empty]


class ParamName(str):
    """The name of a parameter: llmb's, a dotted path of the framework, or the workload's."""

    __slots__ = ()

    @staticmethod
    def type_of(name: str) -> object:
        """Return the type of its value. Texts are checked with the workload, when planning."""
        return Counts if name in PARAMS else DottedValues if is_dotted(name) else Texts


Text = Annotated[str, _has_text]
Params = dict[ParamName, tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys(Switches):
    """The keys that a section, a task, ``defaults`` and ``overrides`` have in common."""

    max_steps: Count | None = None
    gbs: Count | None = None
    framework: Text | None = None
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

    #: YAML's true and false become True and False.
    env: dict[str, bool | str] = field(default_factory=dict)
    params: Params = field(default_factory=dict)
    #: Variables of other launchers that are used as settings, and are no longer among ``env``.
    used: tuple[Used, ...] = field(default=(), metadata=INTERNAL)


def resolved(
    keys: Overrides, env: Mapping[str, bool | str], variables: Variables
) -> tuple[Overrides, list[KeyFaultError]]:
    """Return ``keys`` with their environment ``env`` checked, and its ``variables`` as settings.

    A fault of the environment leaves it empty, and a contradiction leaves all keys empty. If other
    keys were faulty, ``keys`` are empty, and ``env`` is checked alone.
    """
    faults: list[KeyFaultError] = []
    for name in [name for name in env if name not in variables]:
        try:
            check_name(name)
        except KeyFaultError as error:
            faults.append(_below(error, name))
    if faults:
        return replace(keys, env={}), faults
    try:
        check_values({name: str(value) for name, value in env.items()})
        remaining, used = split(env, variables, LISTED, of_list=True)
    except KeyFaultError as error:
        return replace(keys, env={}), [_below(error)]
    if keys.env != env:
        return keys, []
    for variable in used:
        value = keys.params.get(ParamName(variable.sets), getattr(keys, variable.sets, None))
        if value not in (None, variable.value, (variable.value,)):
            message = f"{variable.name} is {variable.value}, but {variable.sets} is set too"
            hint = "omit one of them"
            contradiction = KeyFaultError(
                message, "env", variable.name, hint=hint, code="variable-conflict"
            )
            return Overrides(), [contradiction]
    return replace(keys, env=remaining, used=tuple(used)), []


def _below(error: KeyFaultError, name: str | None = None) -> KeyFaultError:
    """Return ``error`` of an environment, or of the ``name`` of a variable, as one of its keys."""
    path = ("env", *error.path) if name is None else ("env", name)
    value = name if error.value is None else error.value
    return KeyFaultError(str(error), *path, hint=error.hint, code=error.code, value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEntry(Keys):
    """A task. A key that is None is that of its section."""

    dtypes: Annotated[tuple[str, ...], _not_empty] | None = None
    scales: Counts | None = None
    repeats: Count | None = None
    add_profile: bool | None = None
    profile: bool | None = None
    proxy: bool | None = None
    overrides: Overrides = field(default_factory=Overrides)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section(TaskEntry):
    """A section. Without ``tasks`` its own dtypes and scales are one task."""

    defaults: Overrides = field(default_factory=Overrides)
    tasks: Any = None  # read one by one


# settings that a variable of another launcher may set, and those that are keys too
_SETTINGS = {own.name for own in fields(Settings)} - {*MAPPINGS, "software"}
_KEYS = tuple(own.name for own in fields(TaskEntry) if own.name in _SETTINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValues:
    """The values of ``Keys``, by the kind of setting."""

    env: Mapping[str, str]
    #: By the field of Settings.
    settings: Mapping[str, Any]
    #: The values to sweep.
    params: Mapping[str, tuple[Any, ...]]
    slurm: Mapping[str, str]


def layer_of(keys: Keys) -> KeyValues:
    """Return the values of ``keys``. ``params`` come before keys of the same name."""
    settings = _given(keys, _KEYS)
    slurm = {name: str(value) for name, value in _given(keys, OWN_OPTIONS).items()}
    if not isinstance(keys, Overrides):
        return KeyValues(env={}, settings=settings, params={}, slurm=slurm)
    values = {variable.sets: variable.value for variable in keys.used}
    return KeyValues(
        env={name: str(value) for name, value in keys.env.items()},
        settings=settings | {name: value for name, value in values.items() if name in _SETTINGS},
        params={str(name): listed for name, listed in keys.params.items()},
        slurm=slurm | {name: str(values[name]) for name in OWN_OPTIONS if name in values},
    )


def _given(keys: Keys, names: Iterable[str]) -> dict[str, Any]:
    values = {name: getattr(keys, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}
