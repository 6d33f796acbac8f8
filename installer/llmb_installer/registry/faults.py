# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with an image in its registry, as errors that name which of it, where, and the fix."""

from typing import Literal

from llmb.errors import LlmbError

Kind = Literal["unreachable", "not_there", "no_credentials", "refused", "architecture", "unusable", "busy", "damaged"]


class ImageFaultError(LlmbError):
    """An image cannot be had.

    ``kind``: the registry is ``unreachable``; the image is ``not_there``; ``no_credentials`` were found where they are
    needed; those found were ``refused``; the ``architecture`` is missing; the image is ``unusable`` by its form; the
    registry is ``busy`` or broken (429, 5xx) or what it sends is ``damaged``, after all retries.
    """

    def __init__(self, kind: Kind, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.kind: Kind = kind
