# SPDX-License-Identifier: Apache-2.0
"""An entry of a job list: settings with lists of values, which expand to the settings of jobs."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from llmb.contract.settings import MAPPINGS, NOTHING, Settings
from llmb.contract.switches import SettingValue
from llmb.core.values import dataclass
from llmb.errors import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEntry:
    """One task of a job list, or one command line: every combination of its values.

    Names are as written. A place is ``FILE:LINE``, such as ``jobs.txt:4``.
    """

    #: What its jobs have in common. An empty ``model_size`` is the workload's default.
    settings: Settings
    #: The values of settings in which its jobs differ, by the field of Settings. They come before
    #: the one of ``settings``. An empty tuple is as if the field were not named.
    sweeps: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    #: The values of parameters that the workload declares.
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: The values of settings of the framework, by dotted path.
    dotted: Mapping[str, tuple[SettingValue, ...]] = field(default_factory=dict)
    #: Of each combination.
    repeats: int = 1
    #: Adds one profiled job to each combination.
    add_profile: bool = False
    #: Of the size, which has fewer layers.
    proxy: bool = False
    #: Options of sbatch by long name.
    slurm: Mapping[str, str] = field(default_factory=dict)
    #: Of the task.
    place: str = ""
    #: The place of its workload.
    header: str = ""
    #: The place of each dtype and scale.
    places: Mapping[str | int, str] = field(default_factory=dict)
    #: The place of each key that is set.
    key_places: Mapping[str, str] = field(default_factory=dict)
    #: It was read only in part. It is checked further, and never becomes a job.
    faulty: bool = False

    def values(self, name: str) -> tuple[Any, ...]:
        """Return the values of a field of Settings, none if it is not given."""
        value = getattr(self.settings, name)
        one = () if value == getattr(NOTHING, name) else (value,)
        return self.sweeps.get(name) or one

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Return its dtypes, none for the default of the workload."""
        return self.values("dtype")

    @property
    def scales(self) -> tuple[int, ...]:
        """Return its scales in GPUs."""
        return self.values("scale")

    def with_settings(self, **changes: Any) -> "JobEntry":
        """Return the entry with other settings that its jobs have in common."""
        return replace(self, settings=replace(self.settings, **changes))

    def overridden(self, overrides: Settings) -> "JobEntry":
        """Return the entry with ``overrides``, of the command line, before its own settings."""
        if overrides == NOTHING:
            return self
        given = {name: value for name, value in overrides.given.items() if name not in MAPPINGS}
        places = {name: f"--set {name}={value}" for name, value in overrides.parameters.items()}
        return replace(
            self.with_settings(**given, env={**self.settings.env, **overrides.env}),
            sweeps={name: values for name, values in self.sweeps.items() if name not in given},
            parameters={**self.parameters, **_single(overrides.parameters)},
            dotted={**self.dotted, **_single(overrides.dotted)},
            key_places={**self.key_places, **places},
        )

    def expand(self) -> Iterator[Settings]:
        """Yield the settings of each combination. The last value changes first."""
        sweeps = {name: values for name, values in self.sweeps.items() if values}
        for values, texts, own in itertools.product(
            itertools.product(*sweeps.values()),
            itertools.product(*self.parameters.values()),
            itertools.product(*self.dotted.values()),
        ):
            yield replace(
                self.settings,
                **dict(zip(sweeps, values, strict=True)),
                parameters=dict(zip(self.parameters, texts, strict=True)),
                dotted=dict(zip(self.dotted, own, strict=True)),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """A job list as read: its valid entries, every fault of the others, and notes."""

    entries: tuple[JobEntry, ...] = ()
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()


def _single(mapping: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {name: (value,) for name, value in mapping.items()}
