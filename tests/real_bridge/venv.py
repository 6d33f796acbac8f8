# SPDX-License-Identifier: Apache-2.0
"""Creates the environments of the tests with Megatron-Bridge, once on a machine, and prints their
interpreters.

Each lies in $LLMB_TEST_BRIDGE_CACHE (default ~/.cache/llmb/bridge), named by the digest of its
locked requirements, and is made under another name first. Megatron-Bridge 0.6 asks for Python 3.12,
for which a machine may have no torch without CUDA; it is pure Python, so it is unpacked into an
environment of 3.11.
"""

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
PYTHON = "3.11"  # the locks are for this one
LIBRARIES = {
    "0.3.1": ("megatron-bridge==0.3.1", "megatron-core==0.16.1"),
    "0.4.2": ("megatron-bridge==0.4.2", "megatron-core==0.17.1"),
    "0.5.1": ("megatron-bridge==0.5.1", "megatron-core==0.18.2"),
    "0.6.0": ("megatron-bridge==0.6.0", "megatron-core==0.19.0"),
}
# Versions that build their configurations with the packages of another one.
LOCKS = {"0.4.2": "0.6.0", "0.5.1": "0.6.0"}


def shared() -> ModuleType:
    """The same script for NeMo, which knows where torch comes from."""
    spec = importlib.util.spec_from_file_location(
        "nemo_venv", HERE.parent / "real_nemo" / "venv.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Print the interpreters, one a line; 1 when an environment could not be made."""
    nemo = shared()
    for bridge, packages in LIBRARIES.items():
        lock = HERE / f"requirements-{LOCKS.get(bridge, bridge)}.lock"
        words = "\n".join((lock.read_text(encoding="utf-8"), PYTHON, *packages))
        place = cache() / hashlib.sha256(words.encode()).hexdigest()[:16]
        nemo.sweep(place)
        if not place.is_dir():
            try:
                make(nemo, place, lock, packages)
            except subprocess.CalledProcessError as error:
                print(
                    f"error: {shlex.join(map(str, error.cmd))} ended with {error.returncode}",
                    file=sys.stderr,
                )
                hint = "the lines above say why; free 4 GB, or see docs/megatron-bridge.md"
                print(f"hint: {hint}", file=sys.stderr)
                return 1
        print(place / "bin" / "python")
    return 0


def cache() -> Path:
    """The folder of the environments."""
    own = os.environ.get("LLMB_TEST_BRIDGE_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(own) if own else home / "llmb" / "bridge"


def make(nemo: ModuleType, place: Path, lock: Path, packages: tuple[str, ...]) -> None:
    """Build the environment next to ``place`` and rename it, unless another process was faster."""
    print(f"making {place}: {', '.join(packages)}, 1.7 GB", file=sys.stderr)
    part, start = place.with_name(f"{place.name}.{os.getpid()}.part"), time.monotonic()
    nemo.run("venv", "--quiet", "--relocatable", "--python", PYTHON, part)
    nemo.run(
        "pip",
        "sync",
        "--require-hashes",
        "--python",
        part / "bin" / "python",
        *nemo.sources(),
        lock,
    )
    (folder,) = part.glob("lib/python3.*/site-packages")
    target = ("--target", folder, "--python-version", "3.12", "--no-deps", "--only-binary", ":all:")
    nemo.run("pip", "install", "--quiet", "--python", part / "bin" / "python", *target, *packages)
    if place.is_dir():
        shutil.rmtree(part)
        return
    part.rename(place)
    print(f"made it in {time.monotonic() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
