# SPDX-License-Identifier: Apache-2.0
"""One row of a workload's table: GPU types, dtypes and scales, parallelism and batch."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import MISSING, field, fields
from typing import Any, Self, TypeVar

from llmb.contract.model import require_positive
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

ANY_GPU = "any"
ANY_DTYPE = "any"
AnyRow = TypeVar("AnyRow", bound="Row")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_word(name: str, *path: str) -> None:
    """Raise KeyFaultError at ``path`` for a name that no folder or job can have."""
    if not _WORD.fullmatch(name):
        hint = "it becomes part of the names of folders and jobs"
        message, code = f"'{name}' must consist of letters, digits and - _ .", "name-invalid"
        raise KeyFaultError(message, *path, hint=hint, code=code, value=name)


# Keys of a row that only training has.
_OF_TRAINING = frozenset(
    (
        *("tp", "pp", "cp", "vp", "ep", "etp", "mbs", "gbs", "layers", "seq_length"),
        *("strong_scaling", "cuda_graphs", "userbuffers", "releases"),
    )
)


def refuse_of_training(value: Any, names: Collection[str]) -> None:
    """Raise KeyFaultError for the first of the fields ``names`` that has not its default."""
    for key in fields(value):
        default = key.default if key.default_factory is MISSING else key.default_factory()
        if key.name in names and (current := getattr(value, key.name)) != default:
            raise KeyFaultError(
                f"'{key.name}' is for sizes that train a model",
                key.name,
                hint="omit it, or add the 'model'",
                code="not-training",
                value=current,
            )


@dataclass(frozen=True, slots=True)
class BatchRule:
    """The global batch for the GPU count N: ``4N``, ``N/2``, or without N for a constant."""

    text: str
    times: int
    over: int | None

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Parse ``4N``, ``N``, ``N/4`` or a whole number. Raises ValueError."""
        text = str(value).replace(" ", "")
        if re.fullmatch(r"[1-9]\d*", text):
            return cls(text, int(text), None)
        match = re.fullmatch(r"([1-9]\d*)?N(?:/([1-9]\d*))?", text)
        if match is None:
            message = (
                f"'{value}' is not a batch: write 4N, N/4 or a whole number (N: the GPU count)"
            )
            raise KeyFaultError(message, code="batch-invalid", value=value)
        return cls(text, int(match[1] or 1), int(match[2] or 1))

    def unparse(self) -> str:
        """The text that ``parse`` reads."""
        return self.text

    def batch(self, gpus: int) -> int | None:
        """Return the global batch in samples on ``gpus`` GPUs, None if it is not a whole number."""
        if self.over is None:
            return self.times
        return None if self.times * gpus % self.over else self.times * gpus // self.over


@dataclass(frozen=True, slots=True)
class Scales:
    """GPU counts, ascending. ``16..2048`` are the powers of two between both ends."""

    counts: tuple[int, ...]

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Parse one count, a list of counts, or ``first..last``. Raises ValueError."""
        match = re.fullmatch(r"(\d+)\.\.(\d+)", value) if isinstance(value, str) else None
        if match is not None:
            first, last = int(match[1]), int(match[2])
            counts = [first << power for power in range(64) if first and first << power <= last]
            if not counts or counts[-1] != last:
                message = f"'{value}': doubling {first} does not end at {last}"
                raise KeyFaultError(message, code="range-invalid", value=value)
            return cls(tuple(counts))
        counts = value if isinstance(value, list) else [value]
        if not counts or any(type(count) is not int or count < 1 for count in counts):
            raise KeyFaultError(
                f"'{value}' are not scales: write [8, 16] or 8..128",
                code="scales-invalid",
                value=value,
            )
        return cls(tuple(sorted(set(counts))))

    def unparse(self) -> list[int]:
        """The list that ``parse`` reads."""
        return list(self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileWindow:
    """The steps that a release profiles."""

    start: int
    #: The run ends at it.
    stop: int
    #: A launcher that profiled a job by its variable also ran a measured one.
    measured_too: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise KeyFaultError(
                f"must be greater than start, {self.start}, which is at least 0", "stop"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Some GPU types, dtypes and scales of a size, and for training parallelism and batch.

    For training, ``dtype``, ``mbs`` and ``gbs`` are required.
    """

    gpu: tuple[str, ...] = (ANY_GPU,)
    #: One word, for a benchmark without dtypes.
    dtype: tuple[str, ...] = (ANY_DTYPE,)
    scales: Scales = Scales((1,))
    #: Tensor parallelism.
    tp: int = 1
    #: Pipeline parallelism.
    pp: int = 1
    #: Context parallelism.
    cp: int = 1
    #: Virtual pipeline stages, None without.
    vp: int | None = None
    #: Expert parallelism.
    ep: int = 1
    #: Tensor parallelism of experts, None for that of ``tp``.
    etp: int | None = None
    #: Micro batch in samples.
    mbs: int | None = None
    gbs: BatchRule | None = None
    #: Overrides the size's.
    layers: int | None = None
    #: Tokens of a sequence, None for those of the size.
    seq_length: int | None = None
    #: The batch stays while the scale grows; used only on request.
    strong_scaling: bool = False
    time_limit_minutes: int | None = None
    #: The step is captured and replayed.
    cuda_graphs: bool = False
    #: NeMo's configuration of the tensor parallel overlap by dtype (a name in its module
    #: recipes.tp_overlap_configs.userbuffers). A dtype without one keeps the recipe's.
    userbuffers: dict[str, str | None] = field(default_factory=dict)
    #: Memory that one GPU must have, None if unknown.
    memory_gb: float | None = None
    #: The published releases whose settings its scales follow, those of their newest figures. A row
    #: without releases has the settings of NeMo 2.3.1.
    releases: dict[str, Scales] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.gpu or not self.dtype:
            raise ValueError("a row is for at least one gpu and one dtype")
        for dtype in self.dtype:
            check_word(dtype, "dtype")
        require_positive(self)
        if self.memory_gb is not None and not 0 < self.memory_gb < math.inf:
            message = f"must be above 0 and finite, not {self.memory_gb:g}"
            raise KeyFaultError(message, "memory_gb", value=self.memory_gb)
        for dtype in self.userbuffers:
            if dtype not in self.dtype:
                hint = f"the row is for {', '.join(self.dtype)}"
                message, code = f"'{dtype}' is not a dtype of this row", "dtype-unknown"
                raise KeyFaultError(
                    message, "userbuffers", dtype, hint=hint, code=code, value=dtype
                )
        if self.releases and [count for count, _ in self._releases()] != [*self.scales.counts]:
            raise KeyFaultError("each scale of the row must be in exactly one release", "releases")

    def check_kind(self, *, is_training: bool) -> None:
        """Raise KeyFaultError for a key that training needs, or that only training has."""
        if is_training:
            for name in ("dtype", "mbs", "gbs"):
                if getattr(self, name) in (None, (ANY_DTYPE,)):
                    raise KeyFaultError(f"'{name}' is missing", code="key-missing", value=name)
            return
        refuse_of_training(self, _OF_TRAINING)

    def batch(self, gpus: int) -> int | None:
        """Return the global batch in samples on ``gpus`` GPUs, None without one or if not whole."""
        return None if self.gbs is None else self.gbs.batch(gpus)

    def _releases(self) -> list[tuple[int, str]]:
        return sorted(
            (count, name) for name, scales in self.releases.items() for count in scales.counts
        )

    def release(self, scale: int) -> str | None:
        """Return the release of the next lower tested scale, whose settings a job follows."""
        by_count = self._releases()
        return next(
            (name for count, name in reversed(by_count) if count <= scale),
            by_count[0][1] if by_count else None,
        )

    def serves(self, gpus: int) -> bool:
        """Return True if a job on ``gpus`` GPUs may have the settings of this row."""
        return gpus > 0

    def fits(self, gpu: str, dtype: str) -> bool:
        """Return True if the row is for this GPU type and dtype."""
        return dtype in self.dtype and (gpu in self.gpu or ANY_GPU in self.gpu)


def find_row(
    rows: Iterable[AnyRow], gpu: str, dtype: str, scale: int, *, strong: bool
) -> AnyRow | None:
    """Return the row that was tested at ``scale``, else the nearest below, else the first.

    ``gpu`` is the known type whose rows apply. None if no row fits.
    """
    rows = [
        row
        for row in rows
        if row.fits(gpu, dtype) and row.serves(scale) and row.strong_scaling == strong
    ]
    exact = next((row for row in rows if scale in row.scales.counts), None)
    below = sorted(
        (row for row in rows if row.scales.counts[0] <= scale),
        key=lambda row: -row.scales.counts[-1],
    )
    return exact or next(iter([*below, *rows]), None)


def check_unambiguous(rows: Iterable[Row], *path: str) -> None:
    """Raise KeyFaultError at ``path`` if two rows are for the same GPU type, dtype and scale."""
    cases = Counter(
        (gpu, dtype, count, row.strong_scaling)
        for row in rows
        for gpu in row.gpu
        for dtype in row.dtype
        for count in row.scales.counts
    )
    for (gpu, dtype, count, _), matches in cases.items():
        if matches > 1:
            message = f"{matches} rows are for {gpu}, {dtype} on {count} GPUs; keep one of them"
            raise KeyFaultError(message, *path, code="row-duplicate", value=(gpu, dtype, count))
