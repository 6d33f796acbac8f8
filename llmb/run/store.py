# SPDX-License-Identifier: Apache-2.0
"""The folders of runs: create a run's directory, find runs, store their last states and nodes."""

import contextlib
import os
import random
import string
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from llmb.contract import record
from llmb.contract.launch import Stamp
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.state import NOT_SUBMITTED, WAITING, JobState
from llmb.core import files, locks, permissions, typed
from llmb.core.grouping import grouped
from llmb.core.node_lists import expand
from llmb.core.values import dataclass
from llmb.errors import LlmbError, UsageError
from llmb.kit.bashscript import SCHEDULER_ID
from llmb.kit.seen_state import STATE as STATE, last_seen, seen_state as seen_state

_MOST = 1 << 20  # bytes of the file of a script's first act
_PATIENCE = 5.0  # seconds for another process, which writes a state


def new_id() -> str:
    """Return a new run's id: eight letters and digits, unlike a scheduler's, first a letter."""
    chosen = random.SystemRandom()
    return chosen.choice(string.ascii_lowercase) + "".join(
        chosen.choices(string.ascii_lowercase + string.digits, k=7)
    )


def new_directory(experiments: Path, name: str, now: int) -> Stamp:
    """Create the directory of a new run of ``name`` at ``now`` or the next free second.

    Raises LlmbError.
    """
    folder = experiments / name
    try:
        files.make_folder(folder)
        while True:
            directory = folder / f"{name}_{now}"
            try:
                directory.mkdir()
            except FileExistsError:
                now += 1
                continue
            permissions.share_folder(directory)
            (directory / name).mkdir()
            permissions.share_folder(directory / name)
            return Stamp(id=new_id(), timestamp=str(now), directory=str(directory))
    except OSError as error:
        hint = (
            "set experiments_root in cluster_config.yaml or ~/.config/llmb/config.yaml to another"
            " folder"
        )
        raise LlmbError(
            f"{folder} is not writable: {error.strerror}", hint=hint, code="experiments-folder"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A run whose record cannot be read, with the reason."""

    directory: Path
    reason: str


def all_runs(config: ClusterConfig) -> tuple[list[RunRecord], list[Unreadable]]:
    """Return every run of this install, oldest first, and the runs whose record is unreadable."""
    runs: list[RunRecord] = []
    unreadable: list[Unreadable] = []
    for directory in _run_folders(config.runs_root, unreadable):
        try:
            if (run := record.find(directory)) is not None:
                runs.append(run)
        except LlmbError as error:
            unreadable.append(Unreadable(directory=directory, reason=error.message))
    unreadable.sort(key=lambda run: run.directory)
    return sorted(runs, key=lambda run: (run.created, run.name)), unreadable


def show_anew(config: ClusterConfig, names: Iterable[tuple[str, str]]) -> None:
    """List the runs of experiments anew that another host may have just submitted.

    ``names``: pairs of a workload and an experiment of it.
    """
    experiments = grouped(
        (config.experiments(workload), name) for workload, name in dict.fromkeys(names)
    )
    files.show_anew(config.runs_root)
    for folder, named in experiments.items():
        files.show_anew(folder.parent)
        files.show_anew(folder)
        for name in named:
            files.show_anew(folder / name)


def _run_folders(root: Path, unreadable: list[Unreadable]) -> list[Path]:
    """Return the folders ``root/*/experiments/*/*``; those that cannot be listed are added.

    A folder that this user may not read is of runs that are not theirs, and is omitted.
    """
    folders = [workload / "experiments" for workload in _entries(root, unreadable)]
    for _ in range(2):
        folders = [entry for folder in folders for entry in _entries(folder, unreadable)]
    return folders


def _entries(folder: Path, unreadable: list[Unreadable]) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder)]  # noqa: PTH208 - for thousands
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    except OSError as error:  # a stale handle costs the runs of this folder, not all others
        reason = f"{folder} cannot be read: {error.strerror}"
        unreadable.append(Unreadable(directory=folder, reason=reason))
        return []


def runs_of(config: ClusterConfig, workload: str, experiment: str) -> list[RunRecord]:
    """Return the readable runs of one experiment of ``workload``."""
    runs = []
    for directory in sorted(_entries(config.experiments(workload) / experiment, [])):
        with contextlib.suppress(LlmbError):
            if (run := record.find(directory)) is not None:
                runs.append(run)
    return runs


def find_runs(names: Sequence[str], runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs with these names: a unique prefix of an id, a scheduler's id, or a directory.

    Raises UsageError for a name that matches none or several.
    """
    return [_find(name, runs) for name in names]


def _find(name: str, runs: Sequence[RunRecord]) -> RunRecord:
    exact = [run for run in runs if name in _names(run)]
    if not exact and ("/" in name or name in (".", "..")):
        path = files.expand(name).resolve()
        exact = [
            run
            for run in runs
            if run.directory.name == path.name and run.directory.resolve() == path
        ]
    matches = exact or [run for run in runs if name and run.id.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        ids = ", ".join(run.id for run in matches[:8])
        message = f"'{name}' matches {len(matches)} runs: {ids}"
        raise UsageError(message, hint="write more of the id", code="run-ambiguous", value=name)
    hint = "llmb-run jobs shows the runs"
    raise UsageError(f"no run is called '{name}'", hint=hint, code="run-unknown", value=name)


def _names(run: RunRecord) -> tuple[str | None, ...]:
    return (
        run.id,
        run.stamp.id,
        run.name,
        run.scheduler_id,
        *(attempt.scheduler_id for attempt in run.history),
    )


def save_state(run: RunRecord, state: JobState) -> JobState:
    """Store a polled state unless an end is stored already. Returns the resulting state.

    A deleted folder of a run is not created again. If ``state`` has no nodes, it keeps the nodes of
    an earlier poll, unless the job waits again. Raises LlmbError if it cannot be written.
    """
    last = seen_state(run)
    if last is not None and not state.nodes and state.state not in WAITING:
        state = replace(state, nodes=last.nodes)
    if not files.is_folder(run.place):
        return state
    if last is not None and (last.is_final or last == state):
        return last
    # Two pollers may see different states at the same time. Under the lock the later one finds an
    # end that the other has stored, and an end is never overwritten.
    with locks.hold(run.place, "state", wait=_PATIENCE):
        if (newest := last_seen(run)).is_final:
            return newest
        files.write_json(
            run.place / STATE, typed.keeping(state, files.read_json_if_sound(run.place / STATE))
        )
    return state


def forget_full_queue(run: RunRecord) -> None:
    """Remove the state of a run that a full queue turned away, before it is submitted again."""
    if last_seen(run).state == NOT_SUBMITTED:
        with contextlib.suppress(OSError):
            (run.place / STATE).unlink()


def nodes_of(run: RunRecord, state: JobState | None = None) -> tuple[str, ...]:
    """Return the nodes of the run's current attempt, empty if they are not known.

    Also if it waits, as a job does that was requeued: it had other nodes then.
    """
    if state is not None and state.state in WAITING:
        return ()
    if state is not None and state.nodes:
        return tuple(expand(state.nodes))
    written = written_nodes(run.place / SCHEDULER_ID)
    return tuple(expand(written.get("nodes") or written.get("host", "")))


def written_nodes(path: Path) -> dict[str, str]:
    """Return ``nodes``, as Slurm lists them, and ``host`` from the file of a script's first act."""
    return {name: value for name, value in written_words(path).items() if name in ("nodes", "host")}


def written_words(path: Path) -> dict[str, str]:
    """Return everything in the file of a script's first act by its first word, also ``cluster``."""
    with contextlib.suppress(OSError):
        words = (
            line.partition(" ")
            for line in files.read_start(path, _MOST).decode("utf-8", "replace").splitlines()[1:]
        )
        return {name: value for name, _, value in words}
    return {}
