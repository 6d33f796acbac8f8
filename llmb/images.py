# SPDX-License-Identifier: Apache-2.0
"""Container images by reference, and the files that they are installed as."""

from __future__ import annotations

import re
from pathlib import Path

from llmb.config import ClusterConfig


def file_name(reference: str) -> str:
    """The file of an image: ``nvcr.io/nvidia/nemo:25.04.01`` is ``nvidia+nemo+25.04.01.sqsh``."""
    plain = reference.removeprefix("docker://").replace("#", "/")
    registry, slash, rest = plain.partition("/")
    name = rest if slash and (re.search(r"[.:]", registry) or registry == "localhost") else plain
    return re.sub(r"[/:@]", "+", name) + ".sqsh"


def image_path(reference: str, config: ClusterConfig) -> Path:
    """Where the image is on this cluster; a reference that is a path already stays."""
    if reference.startswith(("/", ".", "~")) or reference.endswith(".sqsh"):
        return Path(reference).expanduser()
    return (config.install.image_folder or config.llmb_install / "images") / file_name(reference)
