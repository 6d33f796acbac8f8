# SPDX-License-Identifier: Apache-2.0
"""Names and windows of exemplar-performance in llmb's words."""

import re

# what releases 25.05 to 25.05.05 call Nemotron-4
_NEMOTRON = re.compile(r"(?i)(pretrain(?:ing)?_)?nemotron")
_NGC = "nvcr.io"  # the registry of the images whose file names begin with nvidia+
_LATE_WINDOW = (35, 44)  # since release 25.08


def name_in_llmb(name: str) -> str:
    """Return a workload's name in llmb: ``pretraining_nemotron`` is Nemotron-4."""
    return f"{name}4" if _NEMOTRON.fullmatch(name.strip()) else name


def window_of(release: str | None) -> tuple[int, int] | None:
    """Return the iterations that a release measures of 50, None for llmb's 11 to 44."""
    match = re.match(r"(\d\d)\.(\d\d)", release or "")
    is_late = match is not None and (int(match[1]), int(match[2])) >= (25, 8)
    return _LATE_WINDOW if is_late else None


def image_file(reference: str) -> str:
    """Return the file name of an image: end of the reference, and tag."""
    whole, _, _ = reference.replace("#", "/").partition("@")
    *_, parent, last = ["", *whole.split("/")]
    name, _, tag = last.partition(":")
    if tag.startswith("sha256:"):
        tag = f"sha256-{tag.removeprefix('sha256:')[:12]}"
    return f"{parent}+{name}+{tag or 'latest'}.sqsh"


def reference_of(name: str) -> str:
    """Return the reference of a file name if it is certain: ``nvidia+nemo+25.04.01.sqsh``."""
    parts = name.removesuffix(".sqsh").split("+")
    if len(parts) != 3 or parts[0] != "nvidia" or parts[2].startswith("sha256-"):
        return ""
    return f"{_NGC}/nvidia/{parts[1]}:{parts[2]}"
