# SPDX-License-Identifier: Apache-2.0
"""The command sqshpull: pulls one image, or checks one that exists."""

import argparse
import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from sqshpull import VERSION, record as records
from sqshpull.build import pull
from sqshpull.errors import INTERRUPTED, PullError, PullInputError, describe
from sqshpull.files import bytes_in_words
from sqshpull.manifests import machine_name
from sqshpull.reference import ImageReference
from sqshpull.registry import look_up
from sqshpull.settings import PullSettings, SilentProgress, level_fault

_EPILOG = """\
IMAGE is written as for docker, podman or enroot: ubuntu:24.04, nvcr.io/nvidia/nemo:25.04.01,
docker://nvcr.io#nvidia/nemo:25.04.01, ghcr.io/team/tool@sha256:...

Credentials are searched in REGISTRY_<HOST>_USER and REGISTRY_<HOST>_PASSWORD (for nvcr.io also
NGC_API_KEY), then in the files of docker, podman and enroot. Proxies are those of HTTPS_PROXY and
NO_PROXY.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""


class TerminalProgress:
    """Prints each stage as a line on standard error, and in a terminal the share that is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # layers are fetched by several threads
        self._total = self._done = 0
        self._shown = ""
        self._is_terminal = sys.stderr.isatty()

    def total(self, bytes: int) -> None:
        """Set the total of bytes."""
        self._total = bytes

    def advance(self, bytes: int) -> None:
        """Add finished bytes."""
        with self._lock:
            self._done += bytes
            if self._is_terminal and self._total:
                done_bytes = bytes_in_words(self._done)
                total_bytes = bytes_in_words(self._total)
                self._show(f"{self._done / self._total:4.0%}  {done_bytes} of {total_bytes}")

    def say(self, text: str) -> None:
        """Print a line."""
        with self._lock:
            self._show("")
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line of the share."""
        with self._lock:
            self._show("")

    def _show(self, text: str) -> None:
        if text != self._shown:
            self._shown = text
            sys.stderr.write(f"\r\033[K{text}")
            sys.stderr.flush()


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="sqshpull",
        description="Pull a container image from its registry into one squashfs file, without root"
        " and without a container engine.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("image", metavar="IMAGE", help="the reference of the image")
    add(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="the file to write (default: NAME+TAG.sqsh)",
    )
    add("--arch", help="x86_64, aarch64, ... (default: that of this machine)")
    add("-j", "--jobs", metavar="N", type=int, help="processors for compression (default: all)")
    add(
        "--update", action="store_true", help="build again if the registry has another image by now"
    )
    add(
        "--check",
        action="store_true",
        help="only compare the file with its record and the registry",
    )
    add("--compression", choices=("zstd", "lz4", "gzip", "lzo", "xz"), default="zstd")
    add("--level", metavar="N", type=int, help="compression level (default: 3 for zstd)")
    add(
        "--builder",
        choices=("auto", "stream", "enroot"),
        default="auto",
        help="stream: mksquashfs 4.5 or newer; enroot: enroot import (default: what is here)",
    )
    add("--cache", metavar="DIR", type=Path, help="the folder for layers (default: beside FILE)")
    add("--keep-layers", action="store_true", help="keep the downloaded layers")
    add("--devices", action="store_true", help="keep device nodes: only root can unpack the image")
    add(
        "--insecure",
        metavar="HOST",
        action="append",
        default=[],
        help="a registry that may be asked without TLS",
    )
    add(
        "--mirror",
        metavar="HOST=HOST/PATH",
        action="append",
        default=[],
        help="a mirror to ask instead of a registry",
    )
    add("--ca-bundle", metavar="FILE", type=Path, help="certificates to trust in addition (PEM)")
    add("-q", "--quiet", action="store_true", help="print no progress")
    add("--version", action="version", version=f"sqshpull {VERSION}")
    return parser


def settings_of(words: argparse.Namespace) -> PullSettings:
    """Return the settings on the command line. Raises PullInputError."""
    if words.level is not None and (fault := level_fault(words.compression, words.level)):
        hint = "omit it to use the default"
        raise PullInputError(f"--level: {fault}", hint=hint, code="level-invalid", key="--level")
    if words.jobs is not None and words.jobs < 1:
        hint = "omit it to use all processors"
        raise PullInputError(
            "--jobs must be at least 1", hint=hint, code="jobs-invalid", key="--jobs"
        )
    mirrors = dict(text.partition("=")[::2] for text in words.mirror)
    for registry, mirror in mirrors.items():
        if not registry or not mirror:
            message = f"--mirror {registry or '?'} has no mirror"
            hint = "such as --mirror docker.io=mirror.example.org/hub"
            raise PullInputError(message, hint=hint, code="mirror-invalid", key="--mirror")
    return PullSettings(
        builder=words.builder,
        compression=words.compression,
        level=words.level,
        processors=words.jobs,
        keep_layers=words.keep_layers,
        cache=words.cache,
        devices=words.devices,
        insecure_registries=tuple(words.insecure),
        registry_mirrors=mirrors,
        ca_bundle=words.ca_bundle,
    )


def default_name(reference: ImageReference) -> Path:
    """Return the name of an image's file: enroot's, ``nvidia+nemo+25.04.01.sqsh``."""
    text = f"{reference.repository}+{reference.version}"
    return Path(re.sub(r"[/:]", "+", text) + ".sqsh")


def check_image(
    image: str, target: Path, words: argparse.Namespace, settings: PullSettings
) -> None:
    """Compare the file with its record and with the registry. Raises PullError."""
    if (fault := records.check(target, deep=True)) is not None:
        hint = "run the command without --check to build it again"
        raise PullError(f"{target}: {fault.message}", hint=hint, code=fault.code, key=str(target))
    record = records.read_record(target)
    assert record is not None, "a missing record is a fault"
    print(f"{target} is complete: {record.reference}, sha256 {record.sha256}")
    manifest = look_up(image, words.arch or record.architecture or "", settings=settings)
    if record.reference != str(manifest.reference):
        message = f"{target} is {record.reference}, not {manifest.reference}"
        raise PullError(message, hint="choose another file", code="image-differs", key=str(target))
    if record.digest not in (None, manifest.digest):
        message = f"the registry has a newer image for {image}"
        raise PullError(message, hint="rebuild it with --update", code="image-changed", key=image)
    print(f"the registry has {'an' if record.digest is None else 'the same'} image for {image}")


def run(argv: Sequence[str]) -> None:
    """Run the command. Raises PullError."""
    words = make_parser().parse_args(argv)
    settings = settings_of(words)
    reference = ImageReference.parse(words.image)
    target = words.output or default_name(reference)
    if words.check:
        check_image(words.image, target, words, settings)
        return
    progress = SilentProgress() if words.quiet else TerminalProgress()
    try:
        record = pull(
            words.image,
            target,
            architecture=words.arch,
            settings=settings,
            progress=progress,
            update=words.update,
        )
    finally:
        if isinstance(progress, TerminalProgress):
            progress.clear()
    origin = "adopted, of unknown origin" if record.adopted else str(record.digest)
    size, machine = bytes_in_words(record.size), machine_name(record.architecture)
    print(f"{target}: {size}, for {machine}, {origin}")


def main() -> int:
    """Run the command, and return its exit code."""
    try:
        run(sys.argv[1:])
        sys.stdout.flush()
    except PullError as error:
        print(describe(error), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        # Threads that still fetch layers end with the process.
        with contextlib.suppress(OSError):
            print("interrupted; what was fetched is kept", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return 0
