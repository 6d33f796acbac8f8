# SPDX-License-Identifier: Apache-2.0
"""The one error that a person can mend: it says where, what is wrong, and what to do."""


class RefusedError(Exception):
    """The program will not start like this; its text is one line: place, cause, fix."""

    def __init__(self, place: str, cause: str, fix: str) -> None:
        super().__init__(f"{place}: {cause}; {fix}")
