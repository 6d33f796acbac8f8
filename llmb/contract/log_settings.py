# SPDX-License-Identifier: Apache-2.0
"""The settings of a run without a record, as a file beside its log has them."""

import re
from collections.abc import Mapping
from dataclasses import field

from llmb.core.checked import check_types
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The settings of a run that llmb did not submit. None or empty for what is not known."""

    #: In any spelling that a command line may have.
    workload: str | None = None
    size: str | None = None
    #: The smaller model of the size ran, its proxy.
    proxy: bool = False
    #: ``fp8`` of Megatron-Bridge does not say how it is scaled: the log's name comes before it.
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
    #: Settings of the framework that the user changed, by dotted path.
    dotted: Mapping[str, str] = field(default_factory=dict)
    #: The user's variables. llmb omits those that hold a secret.
    env: Mapping[str, str] = field(default_factory=dict)
    #: The iterations to measure, first and last, None for llmb's default. A run that has fewer is
    #: measured by llmb's default too.
    window: tuple[int, ...] | None = None
    #: How it is known that a profiler ran, as in ``job.yaml has profile: true``, else empty.
    profiled: str = ""
    #: Of the program that submitted the run.
    launcher_release: str | None = None
    #: The scheduler's id: letters, digits, and ``_.-`` after the first.
    job: str | None = None
    #: In seconds since 1970.
    submitted: float | None = None
    gpus_per_node: int | None = None
    #: The reference of the image, as in ``nvcr.io/nvidia/nemo:25.04.01``.
    image: str | None = None
    #: The name of the image's file in the install directory of its tool.
    image_file: str | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if self.window is not None and (len(self.window) != 2 or self.window[0] > self.window[1]):
            hint = "the first and the last iteration, as in (11, 44)"
            raise KeyFaultError("is no window", "window", hint=hint, value=self.window)
        if self.job is not None and not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", self.job, re.A):
            hint = "write the scheduler's id, which becomes part of paths"
            raise KeyFaultError(f"is {self.job!r}", "job", hint=hint, value=self.job)

    def window_of(self, steps: int | None) -> tuple[int, ...] | None:
        """Return the window if a run of ``steps`` has all of it, else None."""
        return self.window if self.window is not None and (steps or 0) > self.window[1] else None
