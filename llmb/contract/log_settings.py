# SPDX-License-Identifier: Apache-2.0
"""The settings of a run without a record, as a file beside its log has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmb.core.checked import check_types
from llmb.errors import KeyFaultError


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The settings of a run that llmb did not submit. None or empty for what is not known."""

    workload: str | None = None
    size: str | None = None
    dtype: str | None = None
    gpu_type: str | None = None
    #: Of the whole job.
    gpus: int | None = None
    #: In samples.
    gbs: int | None = None
    #: ``nemo`` or ``bridge``.
    framework: str | None = None
    #: Of Megatron-Bridge's image.
    release: str | None = None
    #: The values of the workload's parameters.
    parameters: Mapping[str, str] = field(default_factory=dict)
    #: The user's variables, without secrets.
    env: Mapping[str, str] = field(default_factory=dict)
    #: The iterations to measure, first and last, None for llmb's default.
    window: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if self.window is not None and (len(self.window) != 2 or self.window[0] > self.window[1]):
            hint = "the first and the last iteration, as in (11, 44)"
            raise KeyFaultError("is no window", "window", hint=hint, value=self.window)
