# SPDX-License-Identifier: Apache-2.0
"""Where runs are: creates a run's directory, finds runs, stores their last state; and the nodes that they had."""

import contextlib
import random
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llmb.config import ClusterConfig
from llmb.config.own_types import own_types
from llmb.errors import LlmbError, UsageError
from llmb.logs.formats import ParseSpec
from llmb.runs import record
from llmb.runs.launch import Stamp
from llmb.runs.record import RECORD, RunRecord
from llmb.runs.state import JobState
from llmb.system import console, files, locks, permissions
from llmb.text import typed, yamlfile
from llmb.text.node_lists import expand

STATE = "state.json"
_PATIENCE = 5.0  # seconds for another process, which writes a state


def new_id() -> str:
    """A new run's id: eight letters and digits, the first a letter, unlike any scheduler's id."""
    chosen = random.SystemRandom()
    return chosen.choice(string.ascii_lowercase) + "".join(chosen.choices(string.ascii_lowercase + string.digits, k=7))


def new_directory(experiments: Path, name: str, now: int) -> Stamp:
    """Create the directory of a new run of ``name``; its timestamp is ``now`` or the next free second.

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
            files.make_folder(directory / name)
            return Stamp(id=new_id(), timestamp=str(now), directory=str(directory))
    except OSError as error:
        hint = "set experiments_root in cluster_config.yaml or ~/.config/llmb/config.yaml to another folder"
        raise LlmbError(f"{folder} is not writable: {error.strerror}", hint=hint, code="experiments-folder") from error


def runs_root(config: ClusterConfig) -> Path:
    """The folder of the runs of this install, and of the locks between their submitters."""
    return config.experiments_root or config.llmb_install / "workloads"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A run whose record cannot be read, with the reason."""

    directory: Path
    reason: str


def all_runs(config: ClusterConfig) -> tuple[list[RunRecord], list[Unreadable]]:
    """Every run of this install, oldest first, and those whose record cannot be read."""
    runs, unreadable = [], []
    for directory in runs_root(config).glob("*/experiments/*/*"):
        try:
            if (found := record.find(directory)) is not None:
                runs.append(found)
        except LlmbError as error:
            unreadable.append(Unreadable(directory=directory, reason=error.message))
    unreadable.sort(key=lambda one: one.directory)
    return sorted(runs, key=lambda run: (run.created, run.name)), unreadable


def runs_of(config: ClusterConfig, workload: str, experiment: str) -> list[RunRecord]:
    """The runs of one experiment of ``workload``; unreadable records are skipped, ``all_runs`` returns those."""
    runs = []
    for path in sorted((config.experiments(workload) / experiment).glob(f"*/{RECORD}")):
        with contextlib.suppress(LlmbError):
            runs.append(record.load(path.parent))
    return runs


def find_runs(names: Sequence[str], runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs with these names: each a unique prefix of an id, a scheduler's id, or a run's directory.

    Raises UsageError for a name that matches none or several.
    """
    return [_find(name, runs) for name in names]


def _find(name: str, runs: Sequence[RunRecord]) -> RunRecord:
    exact = [run for run in runs if name in _names(run)]
    if not exact and ("/" in name or name in (".", "..")):
        path = files.expand(name).resolve()
        exact = [run for run in runs if run.directory.name == path.name and run.directory.resolve() == path]
    found = exact or [run for run in runs if name and run.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(run.id for run in found[:8])
        message = f"'{name}' matches {len(found)} runs: {ids}"
        raise UsageError(message, hint="write more of the id", code="run-ambiguous", value=name)
    hint = "llmb-run jobs list shows the runs"
    raise UsageError(f"no run is called '{name}'", hint=hint, code="run-unknown", value=name)


def _names(run: RunRecord) -> tuple[str | None, ...]:
    return run.id, run.stamp.id, run.name, run.scheduler_id, *(attempt.scheduler_id for attempt in run.history)


def seen_state(run: RunRecord) -> JobState | None:
    """The last polled state of the run's current attempt; None where it was never polled.

    Also None, with a warning, where its file is damaged or not readable: the cluster is then asked again.
    """
    path = run.place / STATE
    try:
        data = files.read_json(path)
        return None if data is None else typed.read_own(JobState, path, data)
    except LlmbError as error:
        console.warn_once(error.message)
        return None


def save_state(run: RunRecord, state: JobState) -> JobState:
    """Store a polled state unless a final one is stored already; returns the resulting state.

    A deleted folder of a run is not created again. The nodes of an earlier poll stay where this one has none. Raises
    LlmbError where it cannot be written.
    """
    seen = seen_state(run)
    if seen is not None and not state.nodes:
        state = replace(state, nodes=seen.nodes)
    if not run.place.is_dir():
        return state
    if seen is not None and (seen.is_final or seen == state):
        return seen
    with locks.hold(run.place, "state", wait=_PATIENCE):  # another poller may store the end meanwhile
        now = seen_state(run)
        if now is not None and now.is_final:
            return now
        files.write_json(run.place / STATE, typed.keeping(state, files.read_json_if_sound(run.place / STATE)))
    return state


PARSE = "parse.json"


def saved_parse_spec(run: RunRecord) -> ParseSpec | None:
    """The spec that a release before 0.2 stored for the run's current attempt; None where it cannot be read."""
    path = run.place / PARSE
    with contextlib.suppress(LlmbError, ValueError, TypeError):
        if (data := files.read_json_if_sound(path)) is not None:
            return typed.read(ParseSpec, yamlfile.Document(name=str(path), data=data))
    return None


SCHEDULER_ID = "scheduler_id"  # the file that a script writes into the run's folder as its first act


def nodes_of(run: RunRecord, state: JobState | None = None) -> tuple[str, ...]:
    """The nodes of the run's current attempt; empty where it had none yet, or nothing names them.

    Of a cluster type with one machine it is the host.
    """
    if state is not None and state.nodes:
        return tuple(expand(state.nodes))
    kind = own_types().get(run.cluster_type)
    if kind is not None and kind.traits_of(None).one_machine:
        return (run.submitter.host,) if state is not None and state.started is not None else ()
    written = written_nodes(run.place / SCHEDULER_ID)
    return tuple(expand(written.get("nodes") or written.get("host", "")))


def written_nodes(path: Path) -> dict[str, str]:
    """What the file of a script's first act says: ``nodes``, as Slurm lists them, and ``host``, where it started."""
    return {name: value for name, value in written_words(path).items() if name in ("nodes", "host")}


def written_words(path: Path) -> dict[str, str]:
    """Everything that the file of a script's first act says, by its first word: also ``cluster``, as Slurm calls it."""
    with contextlib.suppress(OSError):
        words = (line.partition(" ") for line in path.read_text("utf-8", "replace").splitlines()[1:])
        return {name: value for name, _, value in words}
    return {}
