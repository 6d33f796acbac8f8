# SPDX-License-Identifier: Apache-2.0
"""How long llmb-install takes to build an image, against skopeo + umoci + mksquashfs; and how that
grows.

python benchmarks/images.py            1 GB against the three programs, then 0.1, 0.3 and 1 GB
python benchmarks/images.py --large    3 GB as well
python benchmarks/images.py --small    5 MB

Sizes are of the files in the image, which are programs, libraries and packages of this machine. The
registry is docker's own, on this machine too, so no network is measured.
"""

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from llmb_testing.real_registry import RealRegistry, missing_packages
from llmb_testing.sample_images import Made
from measuring import LLMB_INSTALL, environment, parser, report, skip
from sqshpull.settings import PullSettings
from sqshpull.tar import FILE, Attributes, header, padded

LAYERS = 8
_LARGEST = 1 << 26  # bytes of a file that are taken
OPTIONS = PullSettings().options
MEDIA = "application/vnd.docker.distribution.manifest.v2+json"


def main() -> None:
    """Print a table of seconds, and one of the growth with peak memory and disk."""
    options = parser(__doc__)
    options.add_argument(
        "--large", action="store_true", help="3 GB as well, which takes minutes and 15 GB of disk"
    )
    options.add_argument(
        "--rounds", type=int, default=2, help="how often the two ways are compared"
    )
    arguments = options.parse_args()
    needed = [
        program for program in ("mksquashfs", "skopeo", "umoci") if shutil.which(program) is None
    ]
    if missing := [*missing_packages(), *needed]:
        skip(f"not here: {', '.join(missing)}")
    sizes = (
        [0.005] if arguments.small else [0.1, 0.3, 1.0, 3.0] if arguments.large else [0.1, 0.3, 1.0]
    )
    with (
        tempfile.TemporaryDirectory(prefix="llmb-bench-") as name,
        RealRegistry(Path(name) / "registry") as registry,
    ):
        folder = Path(name)
        images = {size: push(registry, size) for size in sizes}
        compared = 0.005 if arguments.small else 1.0
        ratio = compare(
            folder, images[compared][0], compared, 1 if arguments.small else arguments.rounds
        )
        print(
            f"\n{'image':>8}{'fetched':>10}{'file':>10}{'seconds':>9}"
            f"{'MB/s':>7}{'memory of ours':>16}"
            f"{'of mksquashfs':>15}{'peak disk':>11}"
        )
        for size, (reference, fetched) in images.items():
            seconds, ours, others, disk, built = watched(folder / "grow", reference)
            print(
                f"{size:6.1f}GB{fetched / 1e6:8.0f}MB{built / 1e6:8.0f}MB{seconds:9.1f}"
                f"{size * 1e3 / seconds:7.0f}"
                f"{ours / 1e6:14.0f}MB{others / 1e6:13.0f}MB{disk / 1e6:9.0f}MB"
            )
    report({"image of 1 GB / skopeo + umoci + mksquashfs": ratio})


def compare(folder: Path, reference: str, size: float, rounds: int) -> float:
    """Print the seconds of both ways for one image, in turns, and return the ratio of the least
    times.

    Both use the same compression and the same registry.
    """
    print(f"{size:g} GB in {LAYERS} layers, {os.cpu_count()} processors, {' '.join(OPTIONS)}")
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(watched(folder / "ours", reference)[0])
        theirs.append(three_programs(folder / "theirs", reference))
    parts = [f"{name} {min(times[name] for times in theirs):.1f} s" for name in theirs[0]]
    least = min(sum(times.values()) for times in theirs)
    print(f"llmb-install image               {min(ours):6.1f} s")
    print(f"skopeo + umoci + mksquashfs      {least:6.1f} s  ({', '.join(parts)})")
    print(
        f"ratio                            {min(ours) / least:6.2f}  (the least of {rounds} runs of"
        " each)"
    )
    return min(ours) / least


def three_programs(folder: Path, reference: str) -> dict[str, float]:
    """Seconds that each of the three programs takes for the image."""
    folder.mkdir()
    oci, tree, file = f"oci:{folder}/oci:t", f"{folder}/tree", f"{folder}/image.sqsh"
    copy = ["skopeo", "copy", "-q", "--src-tls-verify=false", f"docker://{reference}", oci]
    unpack = [
        "umoci",
        "unpack",
        *([] if os.geteuid() == 0 else ["--rootless"]),
        "--image",
        f"{folder}/oci:t",
        tree,
    ]
    squash = ["mksquashfs", f"{tree}/rootfs", file, *OPTIONS, "-noappend", "-quiet", "-no-progress"]
    times = {}
    for argv in (copy, unpack, squash):
        started = time.perf_counter()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times[argv[0]] = time.perf_counter() - started
    shutil.rmtree(folder)
    return times


def watched(folder: Path, reference: str) -> tuple[float, int, int, int, int]:
    """Build by llmb-install: seconds, peak bytes in memory of it and of mksquashfs, peak on the
    disk, the file's.
    """
    folder.mkdir()
    file = folder / "image.sqsh"
    started = time.perf_counter()
    argv = [LLMB_INSTALL, "image", reference, "-o", str(file), "--arch", "x86_64"]
    process = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    )
    peaks = [0, 0, 0]
    ended = threading.Event()
    watcher = threading.Thread(
        target=watch, args=(psutil.Process(process.pid), folder, peaks, ended)
    )
    watcher.start()
    code = process.wait()
    seconds = time.perf_counter() - started
    ended.set()
    watcher.join()
    if code != 0:
        raise SystemExit(f"llmb-install ended with exit code {code}")
    size = file.stat().st_size
    shutil.rmtree(folder)
    return seconds, peaks[0], peaks[1], peaks[2], size


def watch(process: psutil.Process, folder: Path, peaks: list[int], ended: threading.Event) -> None:
    """Keep the largest memory of a process and of its children, and the largest use of a folder, in
    ``peaks``.
    """
    while not ended.wait(0.1):
        try:
            found = [
                process.memory_info().rss,
                sum(child.memory_info().rss for child in process.children()),
            ]
            used = sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))
        except (psutil.NoSuchProcess, FileNotFoundError):
            continue
        peaks[:] = map(max, peaks, [*found, used])


def push(registry: RealRegistry, size: float) -> tuple[str, int]:
    """An image of ``size`` GB in the registry: its reference, and the bytes of its layers there."""
    files = files_of_this_machine()
    blobs = [layer(int(size * 1e9 / LAYERS), files) for _ in range(LAYERS)]
    tag = f"{size}"
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["A=1"], "Cmd": ["sh"]},
            "rootfs": {"type": "layers", "diff_ids": [diff for _, diff in blobs]},
            "history": [],
        }
    ).encode()
    kind = "application/vnd.docker.image.rootfs.diff.tar.gzip"
    layers = [descriptor(blob, kind) for blob, _ in blobs]
    manifest = {
        "schemaVersion": 2,
        "mediaType": MEDIA,
        "layers": layers,
        "config": descriptor(config, "application/vnd.docker.container.image.v1+json"),
    }
    content = {digest_of(blob): blob for blob in [config, *(blob for blob, _ in blobs)]}
    registry.push(
        "bench/image",
        tag,
        Made(media_type=MEDIA, manifest=json.dumps(manifest).encode(), blobs=content),
    )
    return registry.reference("bench/image", tag), sum(len(blob) for blob, _ in blobs)


def layer(size: int, files: Iterator[tuple[str, bytes]]) -> tuple[bytes, str]:
    """A gzip layer of the next ``size`` bytes of files; and its tar's digest."""
    from isal import isal_zlib

    pack, plain, out, done = isal_zlib.compressobj(1, wbits=31), hashlib.sha256(), [], 0
    while done < size:
        name, body = next(files)
        piece = header(
            name.encode(), FILE, len(body), Attributes(mode=0o644, mtime=1_700_000_000)
        ) + padded(body)
        plain.update(piece)
        out.append(pack.compress(piece))
        done += len(piece)
    end = bytes(1024)
    plain.update(end)
    return b"".join([*out, pack.compress(end), pack.flush()]), f"sha256:{plain.hexdigest()}"


def files_of_this_machine() -> Iterator[tuple[str, bytes]]:
    """Names and contents of programs, libraries and Python packages; without an end, and no file
    twice the same.
    """
    for time_round in itertools.count():
        for above in (
            f"{sys.base_prefix}/lib",
            f"{sys.prefix}/lib",
            "/usr/lib",
            "/usr/share",
            "/usr/bin",
        ):
            for folder, _, names in os.walk(above):
                for path in (Path(folder, name) for name in names):
                    if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK):
                        body = path.read_bytes()[:_LARGEST]
                        yield (
                            f"round{time_round}{path}",
                            body if not time_round else b"%d" % time_round + body,
                        )


def digest_of(content: bytes) -> str:
    """As registries write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def descriptor(content: bytes, kind: str) -> dict[str, Any]:
    """A blob as a manifest names it."""
    return {"mediaType": kind, "digest": digest_of(content), "size": len(content)}


if __name__ == "__main__":
    main()
