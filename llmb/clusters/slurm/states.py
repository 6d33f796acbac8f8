# SPDX-License-Identifier: Apache-2.0
"""Slurm's words for states, whole or cut short, as ours; and the reasons it gives."""

import pwd
import re

from llmb.runs.state import KNOWN, WAITING

_NO_REASON = frozenset({"", "None", "NonZeroExitCode", "(null)", "N/A", "JobLaunchFailure(null)"})
# Why a job waited: accounting keeps it beyond the job's start, and its end.
_WAITED = re.compile(
    r"Priority|Resources|Dependency$|Licenses|BeginTime|Reservation|ReqNodeNotAvail|Nodes_required|Partition|JobHeld"
    r"|Assoc|QOS|Max\w+PerAccount|Cleaning|Prolog|BurstBuffer|JobArrayTaskLimit|RequeueHold|WaitingForScheduling"
)

_LAST_SIGNAL = 64  # 125 is Slurm's own word for a job that was out of memory


def word(text: str) -> str:
    """The state that Slurm's ``text`` means: ``CANCELLED by 1000``, ``OUT_OF_ME+`` and the like. Unknown ones stay."""
    first = re.split(r"[ ,]", text.strip(), maxsplit=1)[0].upper()
    if not first.endswith("+"):
        return first
    cut = first[:-1]
    meant = [cut] if cut in KNOWN else [state for state in KNOWN if state.startswith(cut)]
    return meant[0] if len(meant) == 1 else first


def reason(text: str, told: str) -> str:
    """Why, in words: who cancelled it as the state's ``text`` says, else what Slurm has ``told``."""
    if match := re.fullmatch(r"CANCELLED by (\d+)", text.strip()):
        return f"cancelled by {_user_name(int(match[1]))}"
    is_stale = word(text) not in WAITING and _WAITED.match(told) is not None
    return "" if told in _NO_REASON or is_stale else told


def exit_code(text: str) -> int | None:
    """The exit code in ``code:signal``, as a shell gives it; None where there is none."""
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None or int(match[2]) > _LAST_SIGNAL:
        return None
    return 128 + int(match[2]) if int(match[2]) else int(match[1])


def seconds(text: str) -> float | None:
    """Seconds since the epoch; None for a time that has not come."""
    return float(text) if text.isdecimal() and int(text) > 0 else None


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
