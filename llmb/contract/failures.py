# SPDX-License-Identifier: Apache-2.0
"""A cause of failures, by the line of a log that shows it."""

from functools import lru_cache

from llmb.core.checked import check_types
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A cause of failures, which a line with any of ``text`` shows. Texts are literal."""

    #: The class of failure, as results and the report group them: ``expired licence``.
    kind: str
    text: tuple[str, ...]
    #: If given, the line has any of these too.
    beside: tuple[str, ...] = ()
    #: The line has none of these.
    without: tuple[str, ...] = ()
    #: Another rank's failure causes it as well.
    follows: bool = False
    #: A cause only if the log has no other.
    weak: bool = False
    #: No cause after a line with any of these.
    not_behind: tuple[str, ...] = ()
    #: The next thing to do.
    fix: str = ""

    def __post_init__(self) -> None:
        check_types(self)
        if not self.kind.strip():
            raise KeyFaultError("is empty", "kind", hint="as in expired licence", value=self.kind)
        for number, text in enumerate(self.text):
            if len(text.strip()) < _SHORTEST or "\n" in text:
                message = f"must be {_SHORTEST} characters or more of one line, not {text!r}"
                hint = "write text that no line of a good run has"
                raise KeyFaultError(message, "text", number, hint=hint, value=text)
        if not self.text:
            raise KeyFaultError("is empty", "text", hint="write text of the line", value=())

    def fits(self, line: bytes) -> bool:
        """Return True if the line shows this cause."""
        return (
            any_in(self.text, line)
            and (not self.beside or any_in(self.beside, line))
            and not (self.without and any_in(self.without, line))
        )


_SHORTEST = 4  # characters: a shorter text is in lines of every log


def any_in(words: tuple[str, ...], line: bytes) -> bool:
    """Return True if ``line`` contains one of ``words``."""
    return any(word in line for word in _encoded(words))


@lru_cache(maxsize=1024)
def _encoded(words: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(word.encode() for word in words)
