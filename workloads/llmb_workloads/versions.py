# SPDX-License-Identifier: Apache-2.0
"""Whether this interpreter has the libraries that training takes, asked before they are imported."""

import importlib.metadata
import re
from collections.abc import Callable

from llmb_workloads.errors import RefusedError

# Nemotron-H is in transformers from 5.3 on, with its dense MLP layers from 5.6 on.
NEEDED = {"torch": (2, 4), "transformers": (5, 6)}


def check_versions(version_of: Callable[[str], str] = importlib.metadata.version) -> None:
    """Raise RefusedError when a library is missing or too old."""
    for name, needed in NEEDED.items():
        least = ".".join(map(str, needed))
        try:
            found = version_of(name)
        except importlib.metadata.PackageNotFoundError as error:
            raise RefusedError(name, "is not installed", f"install {name} {least} or newer") from error
        if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < needed:
            raise RefusedError(f"{name} {found}", "is too old", f"install {name} {least} or newer")
