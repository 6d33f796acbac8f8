# SPDX-License-Identifier: Apache-2.0
"""Shortens the output of a failed program, and finds the fix for a known cause in it."""

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from llmb_installer.registry import size

TAIL, WIDTH = 8, 300  # lines of the log that an error shows, and characters of each
FULL = 20_000_000  # free bytes below which a disk is taken for full

# What pip, uv, git and Slurm print for a known cause, and its fix.
_FIXES = (
    (
        "<urlopen error",
        "the build from source needs a network: build on this machine ('method: here' in the answers), "
        "or set HTTPS_PROXY",
    ),
    (
        "THESE PACKAGES DO NOT MATCH THE HASHES",
        "a package differs from the lock file: if you trust the index, delete the file in .llmb/locks, "
        "and versions are chosen again",
    ),
    (
        "Hash mismatch",
        "a package differs from the lock file: if you trust the index, delete the file in .llmb/locks, "
        "and versions are chosen again",
    ),
    ("CUDA_HOME", "the build from source needs the CUDA compiler: load its module, or set CUDA_HOME"),
    ("nvcc", "the build from source needs the CUDA compiler: load its module, or set CUDA_HOME"),
    ("Retrying (", "check the network, pip's index and proxy (pip config list), torch_index and torch_cpu_index"),
    (
        "error sending request",
        "check the network, pip's index and proxy (pip config list), torch_index and torch_cpu_index",
    ),
    ("No matching distribution", "check 'versions' in the answers, and pip's indexes (pip config list)"),
    ("No solution found", "check 'versions' in the answers, and pip's indexes (pip config list)"),
    ("ResolutionImpossible", "'versions' in the answers conflict: change one"),
    ("No space left", "free space there and in TMPDIR, where pip unpacks packages"),
    ("File too large", "raise the limit of a file's size (ulimit -f)"),
    ("quota", "your quota on that file system is used up: delete files, or choose another folder with --install DIR"),
    ("ensurepip", "install the venv module (Debian: apt-get install python3-venv), or set 'python' in the answers"),
    ("Invalid account", "set slurm.account and slurm.partition in the answers to ones that you may use"),
    ("Invalid partition", "set slurm.partition in the answers; sinfo lists the partitions"),
    ("CERTIFICATE", "give pip your site's certificates: pip config set global.cert FILE"),
    ("SSL", "give pip your site's certificates: pip config set global.cert FILE"),
    ("401", "the index requires a user and password: put them into ~/.netrc or pip's configuration"),
)


# How uv and pip name the package that they cannot build; and a warning of Python's, or the call it quotes below.
_BUILT = re.compile(
    r"(?:Failed to build |Failed building wheel for |Building wheel for )[`']?([\w.\-]+(?:==[\w.+!]+)?)"
)
_WARNING = re.compile(r":\d+: \w*Warning: |^\s+(?:(?:dist|self)\._finalize_\w+|warnings\.warn)\(")


def full_disk(folder: Path, environ: Mapping[str, str]) -> str | None:
    """The fix where a disk is full: not every program reports that as its reason to fail."""
    for place in (folder, Path(environ.get("TMPDIR") or "/tmp")):
        free = shutil.disk_usage(place).free if place.is_dir() else FULL
        if free < FULL:
            return f"free space on the disk of {place}, which has {size(free)} left"
    return None


def fix_for(output: str) -> str:
    """The fix for the output of a failed program."""
    return next((fix for text, fix in _FIXES if text in output), "correct what it reports")


def end_of(output: str) -> str:
    """The last relevant lines of ``output``, below the name of the package that failed to build.

    Of pip's attempts to connect only the last is shown, and no warning of setuptools.
    """
    lines = [line for line in _without_notices(output) if line.strip()]
    trials = [line for line in lines if line.startswith("WARNING: Retrying")]
    shown = [line for line in lines if line not in trials[:-1]][-TAIL:]
    named = [match[1] for match in _BUILT.finditer(output)]
    if named and not any(named[-1] in line for line in shown):
        shown = [f"building {named[-1]}:", *shown]
    return "\n".join(f"  {line[:WIDTH]}" for line in shown)


def _without_notices(output: str) -> Iterator[str]:
    """The lines without Python's warnings; setuptools frames the text of its own with ``!!``."""
    is_framed = False
    for line in output.splitlines():
        if line.strip() == "!!":
            is_framed = not is_framed
        elif not is_framed and _WARNING.search(line) is None:
            yield line
