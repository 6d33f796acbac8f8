# SPDX-License-Identifier: Apache-2.0
"""What a failed program's output says, shortened, and the fix for what it prints of a known cause."""

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from llmb_installer.registry import size

TAIL, WIDTH = 8, 300  # lines of the log that an error shows, and characters of each
HARDLY = 20_000_000  # bytes: where less is free, programs fail for the want of it

# What pip, uv, git and Slurm print for a known cause, and its fix.
_FIXES = (
    (
        "<urlopen error",
        "no network while building: what is built from source fetches files too; 'method: here' in "
        "the answers builds on this machine, and HTTPS_PROXY names a proxy",
    ),
    (
        "THESE PACKAGES DO NOT MATCH THE HASHES",
        "a package is not what the lock file says: is the index to be trusted? "
        "If so, delete the file in .llmb/locks, and the versions are chosen anew",
    ),
    (
        "Hash mismatch",
        "a package is not what the lock file says: is the index to be trusted? "
        "If so, delete the file in .llmb/locks, and the versions are chosen anew",
    ),
    ("CUDA_HOME", "what is built from source needs CUDA's compiler: load its module, or set CUDA_HOME to where it is"),
    ("nvcc", "what is built from source needs CUDA's compiler: load its module, or set CUDA_HOME to where it is"),
    ("Retrying (", "check the network, pip's index and proxy (pip config list), torch_index and torch_cpu_index"),
    (
        "error sending request",
        "check the network, pip's index and proxy (pip config list), torch_index and torch_cpu_index",
    ),
    ("No matching distribution", "check 'versions' in the answers, and where pip looks: pip config list"),
    ("No solution found", "check 'versions' in the answers, and where pip looks: pip config list"),
    ("ResolutionImpossible", "the versions in the answers do not go together: change one"),
    ("No space left", "free space there and in TMPDIR, where pip unpacks"),
    ("File too large", "the limit of a file's size (ulimit -f) stands in the way"),
    ("quota", "your quota on that file system is used up: free some, or install elsewhere with --install DIR"),
    ("ensurepip", "install the venv module (Debian: apt-get install python3-venv), or set 'python' in the answers"),
    ("Invalid account", "set slurm.account and slurm.partition in the answers to what you may use"),
    ("Invalid partition", "set slurm.partition in the answers; sinfo lists what there is"),
    ("CERTIFICATE", "tell pip of your site's certificates: pip config set global.cert FILE"),
    ("SSL", "tell pip of your site's certificates: pip config set global.cert FILE"),
    ("401", "pip takes a user and password from ~/.netrc or its own configuration"),
)


# How uv and pip name the package that they cannot build; and a warning of Python's, or the call it quotes below.
_BUILT = re.compile(
    r"(?:Failed to build |Failed building wheel for |Building wheel for )[`']?([\w.\-]+(?:==[\w.+!]+)?)"
)
_WARNING = re.compile(r":\d+: \w*Warning: |^\s+(?:(?:dist|self)\._finalize_\w+|warnings\.warn)\(")


def full_disk(folder: Path, environ: Mapping[str, str]) -> str | None:
    """What to do where hardly anything is free: not every program says that this is why it failed."""
    for place in (folder, Path(environ.get("TMPDIR") or "/tmp")):
        free = shutil.disk_usage(place).free if place.is_dir() else HARDLY
        if free < HARDLY:
            return f"{size(free)} are left on the disk of {place}: free space there"
    return None


def fix_for(told: str) -> str:
    """The fix for what a program has printed, as far as it is known."""
    return next((fix for word, fix in _FIXES if word in told), "mend the cause")


def end_of(output: str) -> str:
    """The last lines of ``output`` that matter, under the name of the package that could not be built.

    Of pip's repeated trials to connect only the last counts, and no warning of setuptools.
    """
    lines = [line for line in _without_notices(output) if line.strip()]
    trials = [line for line in lines if line.startswith("WARNING: Retrying")]
    told = [line for line in lines if line not in trials[:-1]][-TAIL:]
    named = [match[1] for match in _BUILT.finditer(output)]
    if named and not any(named[-1] in line for line in told):
        told = [f"building {named[-1]}:", *told]
    return "\n".join(f"  {line[:WIDTH]}" for line in told)


def _without_notices(output: str) -> Iterator[str]:
    """The lines without Python's warnings; setuptools puts a frame of ``!!`` around what it has to say in one."""
    is_framed = False
    for line in output.splitlines():
        if line.strip() == "!!":
            is_framed = not is_framed
        elif not is_framed and _WARNING.search(line) is None:
            yield line
