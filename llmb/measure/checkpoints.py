# SPDX-License-Identifier: Apache-2.0
"""The checkpoints of a run: the lines of its log, the files that it wrote, and any problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from llmb.contract.samples import CheckpointEvent
from llmb.core.units import bytes_in_words
from llmb.core.values import dataclass

# Below the folder that the ranks start in; NeMo-Run's launcher, which older releases used, starts
# them in code/.
_STARTS = ("nemo_experiments", "code/nemo_experiments")
# below a name, or a name and a version
_WEIGHTS = ("*/checkpoints/*/weights", "*/*/checkpoints/*/weights")
SHARDS = "*.distcp"
# Files of weights, in the folder of a checkpoint or in one for each rank (`mp_rank_00`), of the
# first kind that exists. Beside shards there are other files that end with .pt.
_KINDS = (SHARDS, "*.pt", "*.safetensors")
_NO_WEIGHTS = "common.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A saved checkpoint. A field is None if the log omits it."""

    folder: str | None = None  #: above ``weights``, None without files
    files: int = 0  #: of weights
    bytes: int = 0
    seconds: float | None = None  #: the longest of any rank
    rank0_seconds: float | None = None
    iteration: int | None = None  #: as logged


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A loaded checkpoint."""

    folder: str | None = None  #: None if unknown
    seconds: float | None = None  #: the longest of any rank
    rank0_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The last save and the last load of a run."""

    saved: Saved | None = None
    loaded: Loaded | None = None
    problems: tuple[str, ...] = ()  #: anything that is missing


def checkpoints_of(
    logged: Sequence[CheckpointEvent],
    work: Path,
    *,
    save: bool = False,
    load: str | None = None,
    ended: bool = True,
) -> Checkpoints | None:
    """Return the checkpoints of a run, or None if it has none.

    They are read from its log and the files below ``work``, the folder that its ranks started in.
    ``save`` and ``load`` are the job's requests. Nothing is missing before the run has ``ended``.
    Files that cannot be read are treated as missing.
    """
    saves = [event for event in logged if event.kind == "save"]
    loads = [event for event in logged if event.kind == "load"]
    weights = [*_weights(work), *_named(saves)]
    if not (saves or loads or save or load or weights):
        return None
    saved = _saved(saves, weights) if saves or weights else None
    loaded = None
    if loads:
        last = loads[-1]
        loaded = Loaded(
            folder=load or last.folder, seconds=last.max_seconds, rank0_seconds=last.rank0_seconds
        )
    problems = [*_problems_of_save(saved, requested=save)] if ended else []
    if ended and load is not None and loaded is None:
        problems.append(f"the log does not confirm that the checkpoint was loaded from {load}")
    return Checkpoints(saved=saved, loaded=loaded, problems=tuple(problems))


def _weights(work: Path) -> list[Path]:
    """Return the folders of weights, the oldest first."""
    try:
        folders = [work / start for start in _STARTS if (work / start).is_dir()]
        weights = [
            path
            for folder in folders
            for end in _WEIGHTS
            for path in folder.glob(end)
            if path.is_dir()
        ]
        return sorted(weights, key=lambda path: (path.stat().st_mtime, str(path)))
    except OSError:
        return []


def _named(saves: Sequence[CheckpointEvent]) -> list[Path]:
    """Return the last checkpoint's folder if the log names it: ``<folder>/iter_0000050``."""
    last = saves[-1] if saves else None
    if last is None or last.folder is None or last.iteration is None or "\0" in last.folder:
        return []
    folder = Path(last.folder) / f"iter_{last.iteration:07d}"
    try:
        return [folder] if folder.is_absolute() and folder.is_dir() else []
    except OSError:
        return []


def _saved(events: Sequence[CheckpointEvent], weights: Sequence[Path]) -> Saved:
    full = [(folder, sizes) for folder in weights if (sizes := _sizes(folder))]
    folder, sizes = full[-1] if full else (None, [])
    checkpoint = folder.parent if folder is not None and folder.name == "weights" else folder
    files = Saved(
        folder=None if checkpoint is None else str(checkpoint), files=len(sizes), bytes=sum(sizes)
    )
    if not events:
        return files
    last = events[-1]
    return replace(
        files, seconds=last.max_seconds, rank0_seconds=last.rank0_seconds, iteration=last.iteration
    )


def _sizes(folder: Path) -> list[int]:
    """Return the bytes of each file of weights that is not empty."""
    try:
        for kind in _KINDS:
            paths = [path for place in (kind, f"*/{kind}") for path in folder.glob(place)]
            files = [path for path in paths if path.name != _NO_WEIGHTS and path.is_file()]
            sizes = [path.stat().st_size for path in files]
            if sizes:
                return [size for size in sizes if size]
    except OSError:
        pass
    return []


def _problems_of_save(saved: Saved | None, *, requested: bool) -> Iterable[str]:
    if saved is None:
        if requested:
            yield (
                f"no checkpoint was saved: the log has no save, and there are no weights/{SHARDS}"
                " files"
            )
        return
    if saved.seconds is None and saved.iteration is None and saved.files:
        yield (
            f"the checkpoint may be incomplete: {saved.folder} has {_files(saved.files)}, but the"
            " log has no save"
        )
    elif saved.seconds is None and saved.iteration is None:
        yield (
            f"no checkpoint was saved: the log has no save, and its weights/{SHARDS} files are"
            " empty or missing"
        )
    elif not saved.files and requested:  # others may be saved anywhere
        yield (
            f"the saved checkpoint is missing: there are no weights/{SHARDS} files; lost, or"
            " deleted since"
        )


def in_words(checkpoints: Checkpoints | None) -> list[str]:
    """Return a phrase for each load and save: ``saved in 4.4 s: 128 files, 204 GB``."""
    if checkpoints is None:
        return []
    words = []
    if checkpoints.loaded is not None and checkpoints.loaded.seconds is not None:
        words.append(f"loaded in {checkpoints.loaded.seconds:.4g} s")
    if (saved := checkpoints.saved) is not None and (saved.seconds is not None or saved.files):
        time = f"saved in {saved.seconds:.4g} s" if saved.seconds is not None else "saved"
        files = f"{_files(saved.files)}, {bytes_in_words(saved.bytes)}" if saved.files else ""
        words.append(": ".join(part for part in (time, files) if part))
    return words


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"
