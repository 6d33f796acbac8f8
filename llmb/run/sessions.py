# SPDX-License-Identifier: Apache-2.0
"""Sessions: the runs of one submitting command, which are judged, compared and resumed together."""

import itertools
import os
import re
import string
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from llmb.contract.record import RunRecord, Session
from llmb.contract.schema import ClusterConfig
from llmb.core import files, typed
from llmb.core.grouping import grouped
from llmb.core.names import suggest
from llmb.core.values import dataclass
from llmb.errors import LlmbError, UsageError
from llmb.run import store

LAST, ALL = "last", "all"
_NIGHT = 12 * 3600.0  # seconds
FOLDER = ".sessions"  # in the folder of the runs, where every submitter can write
_NAME = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)  # an id begins with a digit
_NAMED = 3  # sessions in an error: the newest ones
_ID = re.compile(r"\d{4}-\d\d-\d\d[a-z]+", re.ASCII)


def create(config: ClusterConfig, session: Session) -> Session:
    """Return ``session`` with the next free id of its day, which no other submitter gets."""
    day = _day(session.created)
    try:
        return _numbered(config.runs_root / FOLDER, session, day)
    except (OSError, LlmbError):
        # Only the folders of single workloads may be writable, or none. Then the first run's folder
        # cannot be made either, and that error names the fix.
        return replace(session, id=f"{day}-{store.new_id()}")


def _numbered(folder: Path, session: Session, day: str) -> Session:
    files.make_folder(folder)
    for letters in _letters():
        path = folder / f"{day}{letters}.json"
        numbered = replace(session, id=path.stem)
        # Only one of two submitters at once can create the file. The other takes the next letter.
        if not path.exists() and files.create_text(path, files.to_json(typed.to_data(numbered))):
            return numbered
    raise AssertionError("letters never end")


def _letters() -> Iterator[str]:
    """Yield ``a`` to ``z``, then ``aa``, ``ab`` and so on."""
    for length in itertools.count(1):
        for letters in itertools.product(string.ascii_lowercase, repeat=length):
            yield "".join(letters)


def _day(seconds: float) -> str:
    """Return the day of a moment in this machine's time zone: ``2026-11-23``."""
    return datetime.fromtimestamp(seconds).date().isoformat()


def check_name(name: str) -> None:
    """Raise UsageError for a name of a session that could be taken for something else."""
    if not _NAME.fullmatch(name) or name in (LAST, ALL):
        raise UsageError(
            f"'{name}' cannot name a session",
            hint="begin with a letter; use letters, digits, -, _ and .",
            code="name-invalid",
            key="--session",
            value=name,
        )


def session_of(run: RunRecord) -> Session:
    """Return the session of ``run``, or one for its folder and day if it has none.

    Runs of earlier releases and imported runs have none.
    """
    if run.session is not None:
        return run.session
    day = _day(run.created)
    if run.origin is None:
        return Session(id=day, created=run.created)
    return Session(id=f"{day}-{_installation(run.origin.folder)}", created=run.created)


def _installation(folder: Path) -> str:
    """Return the name of the folder that an imported run came from, without ``workloads/...``."""
    parts = folder.parts
    above = parts[: parts.index("workloads")] if "workloads" in parts else parts[:-1]
    return above[-1].strip("/") or "root" if above else "root"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRuns:
    """A session and its runs, oldest first."""

    session: Session
    runs: tuple[RunRecord, ...]

    @property
    def is_own(self) -> bool:
        """True if this user submitted it: the folder of its first run is theirs."""
        try:
            return self.runs[0].directory.stat().st_uid == os.getuid()
        except OSError:
            return False


def group(runs: Iterable[RunRecord]) -> list[SessionRuns]:
    """Return the sessions of ``runs``, oldest first."""
    ordered = sorted(runs, key=lambda run: (run.created, run.name))
    by_id = grouped((session_of(run).id, run) for run in ordered)
    groups = [
        SessionRuns(session=session_of(members[0]), runs=tuple(members))
        for members in by_id.values()
    ]
    return sorted(
        groups,
        key=lambda found_session: (
            found_session.session.created,
            len(found_session.session.id),
            found_session.session.id,
        ),
    )


def newest(groups: Sequence[SessionRuns]) -> SessionRuns | None:
    """Return the newest session of this user, or of anybody if this user has none."""
    return next(
        (group for group in reversed(groups) if group.is_own), groups[-1] if groups else None
    )


def newest_of_each(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the runs of each configuration that are in the newest session with that one."""
    by_settings = {
        run.job.settings.key: session_runs.session.id
        for session_runs in group(runs)
        for run in session_runs.runs
    }
    return [run for run in runs if by_settings[run.job.settings.key] == session_of(run).id]


def find(name: str, groups: Sequence[SessionRuns]) -> SessionRuns | None:
    """Return the session with this id, ``last``, or the newest with this name, the user's first."""
    if name == LAST:
        return newest(groups)
    exact = next((group for group in groups if group.session.id == name), None)
    return exact or newest([group for group in groups if group.session.name == name])


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedSessions:
    """The sessions that a command shows, with their runs, and the number of all others."""

    shown: tuple[SessionRuns, ...]
    others: int

    @property
    def runs(self) -> list[RunRecord]:
        """The runs of the sessions, oldest first."""
        runs = [run for group in self.shown for run in group.runs]
        return sorted(runs, key=lambda run: (run.created, run.name))


def select(
    runs: Sequence[RunRecord], names: Sequence[str] = (), earliest: float | None = None
) -> SelectedSessions:
    """Select the sessions with these names or ids, by default the newest one of this user.

    With ``earliest``, only sessions with a run submitted since, and by default all of them. Raises
    UsageError for an unknown name.
    """
    groups = group(runs)
    if ALL in names or (earliest is not None and not names):
        chosen = list(groups)
    else:
        chosen = [each for name in names or (LAST,) for each in _named(name, groups)]
    if earliest is not None:
        chosen = [each for each in chosen if any(r.submitted_at >= earliest for r in each.runs)]
    ids = {each.session.id for each in chosen}
    shown = tuple(each for each in groups if each.session.id in ids)
    return SelectedSessions(shown=shown, others=len(groups) - len(shown))


def _named(name: str, groups: Sequence[SessionRuns]) -> list[SessionRuns]:
    match = find(name, groups)
    if match is None and name != LAST:
        raise unknown(name, groups)
    return [] if match is None else [match]


def is_id(text: str) -> bool:
    """Return True if ``text`` has the form of an id, as ``2026-11-23a``."""
    return _ID.fullmatch(text) is not None


def unknown(name: str, groups: Sequence[SessionRuns], hint: str = "") -> UsageError:
    """Return the error that no session is called ``name``. ``hint`` comes before the usual one."""
    names = [text for group in groups for text in (group.session.id, group.session.name) if text]
    nearest = suggest(name, names) if names else "llmb-run jobs lists the runs"
    return UsageError(
        f"there is no session '{name}'",
        hint="; ".join(filter(None, (hint, nearest))),
        code="session-unknown",
        key="--session",
        value=name,
    )


def is_over(session: SessionRuns, now: float) -> bool:
    """Return True if nothing was submitted to ``session`` for half a day before ``now``.

    A name that is used every night then names a new session: nights are no repeats.
    """
    return now - max(run.submitted_at for run in session.runs) > _NIGHT


def in_words(session: Session) -> str:
    """Return ``2026-11-23a`` or ``nightly (2026-11-23a)``."""
    return session.id if session.name is None else f"{session.name} ({session.id})"


def resumable(
    groups: Sequence[SessionRuns],
    session: Session,
    is_wanted: Callable[[RunRecord], bool],
) -> SessionRuns | None:
    """Return the newest session of this user that a command of ``session`` may complete.

    It has the same list, by its path or its content, and a run that ``is_wanted``. Without a list,
    or if the session was made before sessions were recorded, the run is enough. Raises UsageError
    if there are sessions of the list, and none has such a run: their jobs had other options.
    """
    of_list = [
        candidate
        for candidate in groups
        if candidate.is_own and _has_list_of(candidate.session, session)
    ]
    found = next(
        (candidate for candidate in reversed(of_list) if any(map(is_wanted, candidate.runs))), None
    )
    if found is None and any(candidate.session.list_path is not None for candidate in of_list):
        latest = [candidate.session for candidate in reversed(of_list)][:_NAMED]
        raise UsageError(
            "no session of this list has any of these jobs: they differ in configuration,"
            " environment, steps or repeat",
            hint="; ".join(
                [
                    "without --resume, these jobs begin a session; --session NAME adds them to one",
                    *(f"{in_words(candidate)} is of {candidate.command}" for candidate in latest),
                ]
            ),
            code="resume-other-jobs",
            key="--resume",
        )
    return found


def _has_list_of(earlier: Session, session: Session) -> bool:
    """Return True if ``earlier`` may be of the list of ``session``, which may have none."""
    if session.list_path is not None and earlier.list_path is not None:
        is_same_content = session.list_sha256 == earlier.list_sha256
        return session.list_path == earlier.list_path or is_same_content
    if earlier.list_path is not None:
        return False
    return session.list_path is None or earlier.command is None


def before(
    groups: Sequence[SessionRuns], later: SessionRuns, key_of: Callable[[RunRecord], Hashable]
) -> SessionRuns | None:
    """Return the newest earlier session that has the same configurations by ``key_of``.

    If none has all of them, the newest that has one.
    """
    position = [candidate.session.id for candidate in groups].index(later.session.id)
    configurations = set(map(key_of, later.runs))
    candidates = [
        (candidate, configurations & set(map(key_of, candidate.runs)))
        for candidate in reversed(groups[:position])
    ]
    whole = (candidate for candidate, shared in candidates if shared == configurations)
    return next(whole, next((candidate for candidate, shared in candidates if shared), None))
