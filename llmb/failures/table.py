# SPDX-License-Identifier: Apache-2.0
"""The table of failures.yaml: the signatures of each class of failure, in order of precedence, and its fix."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from llmb.logs.scan import Needle, needle
from llmb.runs.state import JobState
from llmb.text import typed, yamlfile

PYTHON = "Python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One row of the table: a line with any of ``text``, any of ``beside`` where given, and none of ``without``.

    ``follows``: another rank's failure causes it as well. ``not_behind``: no cause after a line with any of these.
    ``weak``: a cause only if the log has no other.
    """

    kind: str
    text: tuple[str, ...]
    beside: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    follows: bool = False
    weak: bool = False
    not_behind: tuple[str, ...] = ()

    def fits(self, line: bytes) -> bool:
        """Whether the row describes the line."""
        return (
            any_in(self.text, line)
            and (not self.beside or any_in(self.beside, line))
            and not (self.without and any_in(self.without, line))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The content of failures.yaml; ``fixes``: what to do next, for each class.

    ``hard_ends``: states that explain a failure better than Python errors and rows with ``follows`` in the log.
    """

    causes: tuple[Signature, ...]
    python: tuple[str, ...]
    warnings: tuple[str, ...]
    consequences: tuple[str, ...]
    noise: tuple[str, ...]
    states: dict[str, str]
    hard_ends: tuple[str, ...]
    exit_codes: dict[str, str]
    fixes: dict[str, str]

    def row(self, line: bytes) -> Signature | None:
        """The first row that describes the line; remembered, as the same lines recur."""
        return _row(line) if self is table() else self._row(line)

    def _row(self, line: bytes) -> Signature | None:
        return next((row for row in self.causes if row.fits(line)), None)


@lru_cache(maxsize=256)
def _row(line: bytes) -> Signature | None:
    return table()._row(line)


@lru_cache(maxsize=1)
def table() -> Table:
    """The table of failures, in order of precedence."""
    return typed.read(Table, yamlfile.load(Path(__file__).with_name("failures.yaml")))


@lru_cache(maxsize=1)
def needles() -> Sequence[Needle]:
    """The texts to search for in a log, in addition to tracebacks."""
    rows = table().causes
    texts = [text for row in rows for text in (*row.text, *row.not_behind)]
    return [needle(text) for text in dict.fromkeys((*texts, *table().python))]


def kind_of_end(state: JobState) -> str | None:
    """The class of failure from the scheduler's state, its reason or the exit code; None where they do not show it."""
    row = table().row(state.reason.encode("utf-8", "replace"))
    return table().states.get(state.state) or (row and row.kind) or table().exit_codes.get(str(state.exit_code))


def any_in(words: tuple[str, ...], line: bytes) -> bool:
    """Whether ``line`` contains one of ``words``."""
    return any(word in line for word in _encoded(words))


@lru_cache(maxsize=1024)
def _encoded(words: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(word.encode() for word in words)
