# SPDX-License-Identifier: Apache-2.0
"""Creates a root of a Debian release, once on a machine, and prints its folder: root.py 12|13.

Roots are in $LLMB_TEST_DEBIAN_CACHE (default ~/.cache/llmb/debian), named by the release and the
digest of its package list. A root is built under another name and then renamed, so that an
incomplete one is never used.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

SUITES = {"12": "bookworm", "13": "trixie"}
# no other process sees what debootstrap mounts
PRIVATE = ("unshare", "--mount", "--propagation", "private")
# Packages that a root takes from this machine's Debian instead. With libmariadb3 11.8.9, slurmdbd
# gets no result of any query: "Number of columns in result (=1) ... maximum ... (=0)".
FROM_HERE = {"12": (), "13": ("libmariadb3",)}
MOUNT_POINTS = ("llmb", "venv", "wheels")
MISSING = 77  # the exit code of automake for a test that cannot run here


def main(release: str) -> int:
    """Print the root. Returns MISSING if this machine cannot have one, 1 if creating it failed."""
    if reason := missing():
        print(f"missing for the tests on Debian {release}: {reason}", file=sys.stderr)
        return MISSING
    packages = packages_of(release)
    parts = [SUITES[release], *packages, *FROM_HERE[release]]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    root = cache() / f"{release}-{digest}"
    sweep(root.parent)
    if not root.is_dir():
        mirror, reason = find_mirror(SUITES[release])
        if reason:
            print(f"missing for the tests on Debian {release}: {reason}", file=sys.stderr)
            return MISSING
        if not make(root, release, packages, mirror):
            return 1
    print(root)
    return 0


def missing() -> str | None:
    """Return what this machine lacks to create and enter a root, or None."""
    if os.geteuid():
        return "root: only root may mount and chroot"
    for program in ("debootstrap", "unshare", "apt-get"):
        if shutil.which(program) is None:
            return f"{program}: apt-get install {'util-linux' if program == 'unshare' else program}"
    if subprocess.run(
        [*PRIVATE, "--pid", "--fork", "true"], capture_output=True, check=False
    ).returncode:
        return "namespaces: root cannot create any here (unshare --mount --pid)"
    return None


def cache() -> Path:
    """Return the folder of the roots."""
    folder = os.environ.get("LLMB_TEST_DEBIAN_CACHE")
    if folder:
        return Path(folder).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmb" / "debian"


def packages_of(release: str) -> list[str]:
    """Return the packages that a root has in addition to the smallest Debian."""
    text = Path(__file__).with_name(f"packages{release}.txt").read_text(encoding="utf-8")
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def find_mirror(suite: str) -> tuple[str, str]:
    """Return the Debian archive of this machine's apt, and why it cannot be used or "".

    It is the first archive if apt has no lists yet.
    """
    query = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    for selection in (["Origin: Debian", "Label: Debian"], []):
        argv = [*query, "Component: main", *selection]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        if mirrors := done.stdout.split():
            return mirrors[0], unreachable(f"{mirrors[0].rstrip('/')}/dists/{suite}/Release")
    return "", "apt knows no Debian archive"


def unreachable(url: str) -> str:
    """Return why ``url`` cannot be read, or ""."""
    try:
        with urllib.request.urlopen(url, timeout=30):
            return ""
    except (OSError, ValueError) as error:  # ValueError: not a URL that Python can open
        return f"{url}: {error}"


def make(root: Path, release: str, packages: list[str], mirror: str) -> bool:
    """Build the root under another name and rename it. Return False if debootstrap failed."""
    print(f"making {root}: up to 500 MB, one to four minutes", file=sys.stderr)
    part, start = root.with_name(f"{root.name}.{os.getpid()}.part"), time.monotonic()
    part.mkdir(parents=True)
    log = part.with_suffix(".log")
    include = ",".join(packages)
    argv = [
        *PRIVATE,
        *("debootstrap", "--variant=minbase", f"--include={include}"),
        *(SUITES[release], str(part), mirror),
    ]
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(argv, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        print(f"error: debootstrap ended with {done.returncode}; {log} ends with", file=sys.stderr)
        print("\n".join(log.read_text(encoding="utf-8").splitlines()[-10:]), file=sys.stderr)
        return False
    for package in FROM_HERE[release]:
        replace_package(part, package)
    prepare(part)
    log.unlink()
    if root.is_dir():  # another process was faster
        shutil.rmtree(part)
    else:
        part.rename(root)
    print(f"made it in {time.monotonic() - start:.0f} s", file=sys.stderr)
    return True


def replace_package(root: Path, package: str) -> None:
    """Put the files of a package of this machine's Debian in the place of the root's.

    Leaves the root as it is if apt does not have the package.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["apt-get", "download", "-q", package], cwd=folder, stdout=sys.stderr, check=False
        )
        for archive in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(archive), str(root)], check=True)


def prepare(root: Path) -> None:
    """Create the mount points of `enter`, and remove what only installing needs."""
    for name in MOUNT_POINTS:
        (root / name).mkdir()
    (root / "etc/hosts").touch()
    for name in (
        "var/cache/apt",
        "var/lib/apt/lists",
        "usr/share/doc",
        "usr/share/man",
        "usr/share/locale",
    ):
        shutil.rmtree(root / name)


def sweep(folder: Path) -> None:
    """Remove leftovers of ended processes from ``folder``: incomplete roots and their logs."""
    for part in folder.glob("*.*"):
        named = re.fullmatch(r"\d+-[0-9a-f]+\.(\d+)\.(part|log)", part.name)
        if named is None or psutil.pid_exists(int(named[1])):
            continue
        if named[2] == "log":
            part.unlink(missing_ok=True)
        else:
            shutil.rmtree(part, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
