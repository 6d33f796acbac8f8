# SPDX-License-Identifier: Apache-2.0
"""Numbers in sentences on their limits: 0.94998, not 0.950, is below 0.95."""

from collections.abc import Callable

_MOST = 15  # digits more than usual


def in_enough_digits(
    value: float, limit: float, write: Callable[[float, int], str]
) -> tuple[str, str]:
    """Return both as text, in as many digits as it takes to see which one is greater.

    ``write`` returns a number, with its unit after a blank if it has one. Its second argument is
    how many more digits than usual the number has: 0 for equal numbers.
    """
    texts = write(value, 0), write(limit, 0)
    for more in range(1, _MOST + 1):
        if value == limit or _number(texts[0]) != _number(texts[1]):
            break
        texts = write(value, more), write(limit, more)
    return texts


def exact(limit: float) -> str:
    """Return a limit with the digits that its author wrote: ``0.95``, ``1234567``."""
    return f"{limit:.12g}"


def _number(text: str) -> float:
    return float(text.split()[0].replace(",", ""))
