# SPDX-License-Identifier: Apache-2.0
"""Creates a root of Debian 13 with Slurm 24.11 and Python 3.13, once on a machine, and prints its folder.

It is in $LLMB_TEST_DEBIAN_CACHE (default ~/.cache/llmb/debian13), named by the digest of its package list. It is built
under another name and then renamed, so that an incomplete one is never used.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

SUITE = "trixie"
PACKAGES = Path(__file__).with_name("packages.txt")
PRIVATE = ("unshare", "--mount", "--propagation", "private")  # no other process sees what debootstrap mounts
MOUNT_POINTS = ("llmb", "venv", "wheels")
MISSING = 77  # the exit code of automake for a test that cannot run here


def main() -> int:
    """Print the root. Returns MISSING if this machine cannot have one, 1 if creating it failed."""
    if reason := why_not():
        print(f"missing for the tests on Slurm 24.11 and Python 3.13: {reason}", file=sys.stderr)
        return MISSING
    root = cache() / hashlib.sha256("\n".join([SUITE, *packages()]).encode()).hexdigest()[:16]
    sweep(root.parent)
    if not root.is_dir():
        mirror = find_mirror()
        if mirror is None:
            print("missing for the tests on Slurm 24.11 and Python 3.13: apt knows no Debian archive", file=sys.stderr)
            return MISSING
        if not make(root, mirror):
            return 1
    print(root)
    return 0


def why_not() -> str | None:
    """Why no root can be created or entered here, or None."""
    if os.geteuid():
        return "root: only root may mount and chroot"
    for program in ("debootstrap", "unshare", "apt-get"):
        if shutil.which(program) is None:
            return f"{program}: apt-get install {'util-linux' if program == 'unshare' else program}"
    if subprocess.run([*PRIVATE, "--pid", "--fork", "true"], capture_output=True, check=False).returncode:
        return "namespaces: root cannot create any here (unshare --mount --pid)"
    return None


def cache() -> Path:
    """The folder of the roots."""
    own = os.environ.get("LLMB_TEST_DEBIAN_CACHE")
    if own:
        return Path(own).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmb" / "debian13"


def packages() -> list[str]:
    """The packages to include, as PACKAGES lists them."""
    lines = (line.partition("#")[0].strip() for line in PACKAGES.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def find_mirror() -> str | None:
    """The Debian archive of this machine's apt; the first archive if apt has no lists yet."""
    for more in (["Origin: Debian", "Label: Debian"], []):
        argv = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main", *more]
        if found := subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split():
            return found[0]
    return None


def make(root: Path, mirror: str) -> bool:
    """Build the root under another name and rename it. Returns whether that succeeded."""
    print(f"making {root}: 500 MB, one to four minutes", file=sys.stderr)
    part, start = root.with_name(f"{root.name}.{os.getpid()}.part"), time.monotonic()
    part.mkdir(parents=True)
    log = part.with_suffix(".log")
    include = ",".join(packages())
    argv = [*PRIVATE, "debootstrap", "--variant=minbase", f"--include={include}", SUITE, str(part), mirror]
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(argv, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        print(f"error: debootstrap ended with {done.returncode}; {log} ends with", file=sys.stderr)
        print("\n".join(log.read_text(encoding="utf-8").splitlines()[-10:]), file=sys.stderr)
        return False
    prepare(part)
    log.unlink()
    if root.is_dir():  # another process was faster
        shutil.rmtree(part)
    else:
        part.rename(root)
    print(f"made it in {time.monotonic() - start:.0f} s", file=sys.stderr)
    return True


def prepare(root: Path) -> None:
    """Create the mount points of `enter`, and remove what only installing needs."""
    for name in MOUNT_POINTS:
        (root / name).mkdir()
    (root / "etc/hosts").touch()
    for name in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(root / name)


def sweep(folder: Path) -> None:
    """Remove leftovers of ended processes from ``folder``: incomplete roots and their logs."""
    for part in folder.glob("*.*"):
        named = re.fullmatch(r"[0-9a-f]+\.(\d+)\.(part|log)", part.name)
        if named is None or psutil.pid_exists(int(named[1])):
            continue
        if named[2] == "log":
            part.unlink(missing_ok=True)
        else:
            shutil.rmtree(part, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
