# SPDX-License-Identifier: Apache-2.0
"""The session of a submitting command: a new one, or the one that `--resume` continues."""

import hashlib
import shlex
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from llmb.cli.context import CliContext, say
from llmb.cli.submit.options import SubmitOptions
from llmb.contract.record import RunRecord, Session
from llmb.contract.state import COMPLETED, NOT_SUBMITTED, JobState
from llmb.core import locks
from llmb.core.names import listed
from llmb.core.process import ProcessId
from llmb.kit.seen_state import last_seen
from llmb.run import sessions, store
from llmb.run.polling import poll, try_poll
from llmb.run.prepare import Prepared
from llmb.run.resume import Remaining, planned_key, remaining
from llmb.run.sessions import SessionRuns

NEW_SESSION = "<new>"  # in the place of an id that only a submission knows
_NAMED_SESSIONS = 4  # in a line
_WAIT = 600.0  # seconds for another --resume, which may be about to submit the same jobs


def resume_lock(context: CliContext) -> AbstractContextManager[None]:
    """The lock between commands that resume: two at once would submit the same jobs."""

    def announce_wait(owner: ProcessId) -> None:
        say(f"waiting for process {owner.pid} on {owner.host}, which resumes a list")

    folder = context.config.runs_root / ".locks"
    return locks.hold(folder, "resume", wait=_WAIT, on_wait=announce_wait)


def session_for(
    context: CliContext, items: Sequence[Prepared], options: SubmitOptions, joblist: Path | None
) -> tuple[Session, tuple[RunRecord, ...]]:
    """Return the session of these jobs and its earlier runs.

    It is a new one without an id, unless ``--session`` or ``--resume`` continues one, which is
    printed. Raises UsageError for an invalid name.
    """
    content = joblist.read_bytes() if joblist is not None and joblist.is_file() else None
    new = Session(
        id=NEW_SESSION,
        name=options.session,
        created=time.time(),
        list_sha256=None if content is None else hashlib.sha256(content).hexdigest(),
        list_path=None if joblist is None else str(joblist.absolute()),
        command=shlex.join(["llmb-run", *context.words]),  # has no secrets: --env refuses them
    )
    continued = None
    if options.session is not None or options.resume:
        groups = sessions.group(run for run in context.runs() if run.origin is None)
        keys = {planned_key(item) for item in items}
        if options.session is not None:
            continued = _continued(options.session, groups, resumes=options.resume)
            if continued is None and options.resume:  # perhaps misspelled: all would run again
                raise sessions.unknown(
                    options.session, groups, "without --resume, these jobs begin it"
                )
        else:
            continued = sessions.resumable(groups, new, lambda run: planned_key(run) in keys)
    if continued is None:
        if options.session is not None:
            sessions.check_name(options.session)
        return new, ()
    session, name = continued.session, sessions.in_words(continued.session)
    if options.resume:
        say(f"resuming session {name}: {session.command or 'of an earlier release'}")
    else:
        say(f"note: session {name} exists: these jobs are added to it")
    if session.list_path == new.list_path and session.list_sha256 != new.list_sha256:
        say(f"note: {joblist} has changed since this session began")
    return session, continued.runs


def _continued(name: str, groups: Sequence[SessionRuns], *, resumes: bool) -> SessionRuns | None:
    """Return the session that these jobs are added to, or None for a new one.

    A name names a new session every night. An id, and ``--resume``, mean the one that exists.
    """
    named = sessions.find(name, groups)
    is_new = (
        named is not None
        and not resumes
        and name == named.session.name
        and sessions.is_over(named, time.time())
    )
    if named is not None and is_new:
        say(f"note: session {sessions.in_words(named.session)} is over: this is a new one")
    return None if is_new else named


def rest_of(
    context: CliContext,
    items: Sequence[Prepared],
    earlier: Sequence[RunRecord],
) -> Remaining:
    """Find the jobs of ``items`` that remain to be submitted here. Print the others' number.

    Only the ``earlier`` runs of the session count.
    """
    keys = {planned_key(item) for item in items}
    runs = [run for run in earlier if run.origin is None and planned_key(run) in keys]
    states = poll(context.need_cluster(), runs) if runs else {}
    unsent = [run for run in runs if states[run.id].state == NOT_SUBMITTED]
    live = [run for run in runs if not states[run.id].is_over]
    remainder = remaining(items, _succeeded(context, runs, states), live, unsent)
    under_way = f", {len(remainder.live)} running or waiting" if remainder.live else ""
    recorded = f", {len(remainder.unsent)} recorded and not submitted" if remainder.unsent else ""
    say(f"{len(remainder.done)} of {len(items)} are done{under_way}{recorded}")
    return remainder


def _succeeded(
    context: CliContext, runs: Sequence[RunRecord], states: dict[str, JobState]
) -> list[RunRecord]:
    """The runs that succeeded, and completed ones whose logs cannot be read any more."""
    from llmb.cli.judging import results_of, states_of
    from llmb.measure.result import SUCCESS, UNKNOWN

    ended = [run for run in runs if states[run.id].is_end]
    results = results_of(context, ended, states_of(context, ended))
    return [
        run
        for run, result in zip(ended, results, strict=True)
        if result.status == SUCCESS or (result.status, result.state) == (UNKNOWN, COMPLETED)
    ]


def warn_of_jobs_under_way(context: CliContext, items: Sequence[Prepared]) -> None:
    """Print a warning if runs of equal jobs have not ended: the command may be a repeated one."""
    names = dict.fromkeys((item.job.workload, item.job.experiment_name) for item in items)
    recorded = (run for name in names for run in store.runs_of(context.config, *name))
    runs = [run for run in recorded if run.origin is None and not last_seen(run).is_final]
    if not runs:
        return
    states, _ = try_poll(context.need_cluster(), runs)
    under_way = remaining(items, (), [run for run in runs if not states[run.id].is_over]).live
    if not under_way:
        return
    named = {sessions.session_of(run).id: sessions.session_of(run) for run in under_way}
    titles = listed([*map(sessions.in_words, named.values())], _NAMED_SESSIONS)
    verb = "is" if len(under_way) == 1 else "are"
    none_is_new = len(under_way) == len(items)
    say(
        f"warning: {len(under_way)} of {len(items)} jobs {verb} waiting or running already, in"
        f" session {titles}, and {verb} submitted once more;"
        f" {'with --resume, none is' if none_is_new else 'to submit only the others, add --resume'}"
    )
