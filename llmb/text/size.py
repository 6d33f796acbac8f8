# SPDX-License-Identifier: Apache-2.0
"""Numbers of bytes, as people read them."""


def bytes_in_words(number: int) -> str:
    """``number`` of bytes in units of 1000: 1.6 GB."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number} bytes"
