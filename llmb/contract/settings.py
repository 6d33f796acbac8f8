# SPDX-License-Identifier: Apache-2.0
"""The settings of a run: every value that says what runs, as far as it is given or known."""

from collections.abc import Hashable, Mapping
from dataclasses import field, fields, replace
from operator import attrgetter
from typing import Any

from llmb.contract.software import Software
from llmb.contract.switches import NAMES, PARAMS, SettingValue, Switches
from llmb.core import typed
from llmb.core.values import dataclass

SPLIT = ("tp", "pp", "cp", "vp", "ep", "etp", "mbs")  # settings of parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Switches):
    """The settings of a run. One that has its default is not given by a user, or not in a log.

    Those of a ``Job`` and of a result are complete. A field of training is None also if no model is
    trained.
    """

    workload: str = ""
    model_size: str = ""
    dtype: str = ""
    #: The cluster's name for it.
    gpu_type: str | None = None
    #: In GPUs.
    scale: int = 0
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
    max_steps: int | None = field(default=None, metadata={"compared": False})
    #: With Nsight Systems, which costs time.
    profile: bool = False
    #: The run also saved a checkpoint.
    saves: bool = False
    #: The run also loaded a checkpoint.
    loads: bool = False
    #: ``nemo``, or ``bridge`` with the image ``release``.
    framework: str = ""
    release: str | None = None
    #: The GPU type whose rows it used, None for its own.
    rows_of: str | None = None
    #: Settings of the framework that the user changed, by dotted path.
    dotted: Mapping[str, SettingValue] = field(default_factory=dict)
    #: The ``dotted`` settings that change the model or its dtype, besides ``gbs``, ``seq_length``
    #: and ``num_layers``.
    changes: Mapping[str, SettingValue] = field(default_factory=dict)
    #: The values of the parameters that the workload declares.
    parameters: Mapping[str, str] = field(default_factory=dict)
    #: The user's variables, by name.
    env: Mapping[str, str] = field(default_factory=dict)
    #: As it was at the submission, None if unknown.
    software: Software | None = None

    @property
    def label(self) -> str:
        """Workload and size, for messages."""
        return f"{self.workload} {self.model_size}"

    @property
    def params(self) -> dict[str, int]:
        """Return the given ones of PARAMS, by name."""
        return {name: value for name in PARAMS if (value := getattr(self, name)) is not None}

    @property
    def given(self) -> dict[str, Any]:
        """Return the settings that do not have their default, by name."""
        return {name: value for name in _NAMES if (value := getattr(self, name)) != _DEFAULTS[name]}

    @property
    def key(self) -> Hashable:
        """Equal for runs with equal settings of COMPARED."""
        mappings = [
            tuple(sorted(mapping.items())) if mapping else () for mapping in _mappings(self)
        ]
        return _plain(self), *mappings

    def unparse(self) -> dict[str, Any]:
        """Return the settings of COMPARED as plain data, as results have them."""
        values = zip(COMPARED, _compared(self), strict=True)
        return {name: None if value is None else typed.to_data(value) for name, value in values}

    def or_else(self, other: "Settings") -> "Settings":
        """Return these settings with those of ``other`` that they lack."""
        if NOTHING in (self, other):
            return other if self == NOTHING else self
        missing: dict[str, Any] = {
            name: getattr(other, name)
            for name in COMPARED
            if getattr(self, name) == _DEFAULTS[name]
        }
        missing["parameters"] = {**other.parameters, **self.parameters}
        return replace(self, **missing)


NOTHING = Settings()
_FIELDS = sorted(fields(Settings), key=lambda setting: setting.name in NAMES)
_NAMES = tuple(setting.name for setting in _FIELDS)
_DEFAULTS = {name: getattr(NOTHING, name) for name in _NAMES}
_COMPARED = [own for own in _FIELDS if own.metadata.get("compared", own.name not in NAMES)]
#: The settings that repeats have in common, in the order of the results' JSON.
COMPARED = tuple(setting.name for setting in _COMPARED)
MAPPINGS = tuple(setting.name for setting in _COMPARED if setting.default_factory is dict)
_compared = attrgetter(*COMPARED)
_plain = attrgetter(*(name for name in COMPARED if name not in MAPPINGS))
_mappings = attrgetter(*MAPPINGS)
