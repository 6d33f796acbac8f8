# SPDX-License-Identifier: Apache-2.0
"""Reads what Megatron-LM and Megatron-Bridge say of checkpoints; the seconds are in a line of their own, of timers.

``  successfully saved checkpoint from iteration      50 to /ckpt [ t 1/1, p 1/1 ]`` and then
``    save-checkpoint ................................: (24895.07, 24895.13)``, the shortest and the longest time of all
ranks in ms.
"""

import re
from dataclasses import replace

from llmb.logs.samples import Checkpoint
from llmb.logs.scan import Line, needle
from llmb.logs.text import plain, strip_escapes

SAVED = needle("successfully saved checkpoint from iteration")
LOADED = needle("successfully loaded checkpoint from")
SAVE_TIMER, LOAD_TIMER = needle("save-checkpoint .", b"()"), needle("load-checkpoint .", b"()")
CHECKPOINTS = (SAVED, LOADED, SAVE_TIMER, LOAD_TIMER)

_SAVED = re.compile(rb"from iteration\s{1,20}(\d{1,12})(?: to (\S{1,1024}))?")
_LOADED = re.compile(rb"checkpoint from (\S{1,1024})(?:.{0,80} at iteration\s{1,20}(\d{1,12}))?")
_TIMER = re.compile(rb"-checkpoint [.]{1,200}:\s{0,9}\((\d{1,15}(?:\.\d{1,9})?),\s{0,9}(\d{1,15}(?:\.\d{1,9})?)\)")


def add_checkpoint(saves: list[Checkpoint], loads: list[Checkpoint], text: bytes, line: Line) -> None:
    """Add what the ``line``, found by the ``text`` of one of CHECKPOINTS, says to ``saves`` or ``loads``."""
    after = strip_escapes(line.after)
    if text in (SAVE_TIMER.text, LOAD_TIMER.text):
        _add_time(saves if text == SAVE_TIMER.text else loads, "save" if text == SAVE_TIMER.text else "load", after)
        return
    found = None if line.cut else (_SAVED if text == SAVED.text else _LOADED).search(after)
    if found is None:
        return
    if text == SAVED.text:
        iteration, folder = int(found[1]), found[2]
        saves.append(_event("save", iteration, folder))
    else:
        loads.append(_event("load", None if found[2] is None else int(found[2]), found[1]))


def _event(kind: str, iteration: int | None, folder: bytes | None) -> Checkpoint:
    own = None if folder is None else plain(folder, 1024)
    return Checkpoint(
        kind="save" if kind == "save" else "load", ranks=(0,), max_seconds=None, iteration=iteration, folder=own
    )


def _add_time(events: list[Checkpoint], kind: str, after: bytes) -> None:
    """The longest time of all ranks, for the last checkpoint that has none."""
    found = _TIMER.search(after)
    if found is not None and events and events[-1].kind == kind and events[-1].max_seconds is None:
        events[-1] = replace(events[-1], max_seconds=float(found[2]) / 1000)
