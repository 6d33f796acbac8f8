# SPDX-License-Identifier: Apache-2.0
"""Creates the environment of the tests with the real NeMo, once on a machine, and prints its
interpreter.

It lies in $LLMB_TEST_NEMO_CACHE (default ~/.cache/llmb/nemo) under the digest of the locked
requirements. It is made beside its place and then renamed, so that one which was interrupted is
never taken for whole.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

LOCK = Path(__file__).with_name("requirements.lock")
PYTHON = "3.11"  # the lock is for this one
# Build requirements are not locked, and must be as old as the packages.
DATES = ("--exclude-newer", "2025-06-15", "--exclude-newer-package", "torch=2026-12-31")
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
UV = Path(sys.executable).with_name("uv")


def main() -> int:
    """Print the interpreter; 1 when the environment could not be made."""
    digest = hashlib.sha256(LOCK.read_bytes() + PYTHON.encode()).hexdigest()[:16]
    place = cache() / digest
    sweep(place)
    if not place.is_dir():
        try:
            make(place)
        except subprocess.CalledProcessError as error:
            print(
                f"error: {shlex.join(map(str, error.cmd))} ended with {error.returncode}",
                file=sys.stderr,
            )
            print("hint: the lines above say why; free 5 GB, or see docs/nemo.md", file=sys.stderr)
            return 1
    print(place / "bin" / "python")
    return 0


def cache() -> Path:
    """The folder of the environments."""
    own = os.environ.get("LLMB_TEST_NEMO_CACHE")
    return (
        Path(own)
        if own
        else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmb" / "nemo"
    )


def make(place: Path) -> None:
    """Build the environment next to ``place`` and rename it, unless another process was faster."""
    print(f"making {place}: 2.4 GB, some minutes where nothing is in uv's cache", file=sys.stderr)
    part, start = place.with_name(f"{place.name}.{os.getpid()}.part"), time.monotonic()
    run("venv", "--quiet", "--relocatable", "--python", PYTHON, part)
    run(
        "pip",
        "sync",
        "--require-hashes",
        "--python",
        part / "bin" / "python",
        *DATES,
        *sources(),
        LOCK,
    )
    if place.is_dir():
        shutil.rmtree(part)
        return
    part.rename(place)
    print(f"made it in {time.monotonic() - start:.0f} s", file=sys.stderr)


def sweep(place: Path) -> None:
    """Remove leftovers of ended processes next to ``place``."""
    for part in place.parent.glob("*.part"):
        pid = re.fullmatch(r"[0-9a-f]+\.(\d+)\.part", part.name)
        if pid is not None and not psutil.pid_exists(int(pid[1])):
            # its uv may still write: the next start removes it
            shutil.rmtree(part, ignore_errors=True)


def sources() -> list[str]:
    """Where uv finds torch without CUDA: pip's find-links, otherwise PyTorch's index."""
    links = find_links()
    if links:
        return [word for link in links for word in ("--find-links", link)]
    # Only torch comes from there: its hash is locked.
    return ["--extra-index-url", TORCH_INDEX, "--index-strategy", "unsafe-best-match"]


def find_links() -> list[str]:
    """The ``find-links`` of pip's configuration, without duplicates."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    values = re.findall(r"\.find-links='(.*)'$", listed, re.MULTILINE)
    return list(
        dict.fromkeys(link for value in values for link in value.replace("\\n", " ").split())
    )


def run(*arguments: object) -> None:
    """Run uv, with what it prints on stderr. Raises CalledProcessError."""
    subprocess.run([str(UV), *map(str, arguments)], stdout=sys.stderr, check=True)


if __name__ == "__main__":
    sys.exit(main())
