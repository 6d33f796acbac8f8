# SPDX-License-Identifier: Apache-2.0
"""Builds an image by streaming its layers into mksquashfs, without root and without unpacking them."""

import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from llmb.errors import LlmbError
from llmb.system import files, shell
from llmb.text.units import bytes_in_words
from llmb_installer.answers.schema import ImageAnswers
from llmb_installer.images.apply_layers import RefusedError, Tree, names_by_layer
from llmb_installer.images.image_tar import RC, ExtraFile, etc_files, working_folder, write_image
from llmb_installer.images.layer import Layer, Names, layer_fault, layers_of, missing_bytes
from llmb_installer.images.tar_headers import BLOCK, DEVICES, FILE, Attributes
from llmb_installer.registry.client import Registry
from llmb_installer.registry.manifests import Manifest
from llmb_installer.step import Context, Progress

Via = Literal["here", "srun"]
Write = Callable[[bytes | memoryview], None]
NEEDED = (4, 5)  # the first version that reads tar from its standard input
_EMPTY_TAR = bytes(2 * BLOCK)
_GET = "install squashfs-tools 4.5 or newer (your cluster may have it as a module), or choose the builder 'enroot'"
_TAIL = 8  # lines of its output that an error shows
_MEMORY = 1024, 32  # MiB for mksquashfs: the base, and for each processor
_OURS = "the files in /etc for enroot"
ELSEWHERE = "another folder (image_folder in the answers, -o FILE)"  # in hints: where images can go
# zstd's own default, 15, takes twenty times as long as 3 and saves a few percent.
_LEVELS = {"zstd": 3, "gzip": 6, "lz4": None, "lzo": None, "xz": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSettings(ImageAnswers):
    """How an image is built: as the answers say, and where.

    ``builder``: ``stream`` writes it here from the registry's layers; ``enroot`` calls enroot import, ``via`` srun on a
    node or here; ``auto`` is ``stream`` if mksquashfs supports it, else ``enroot``. ``cache`` is the folder for
    downloaded layers, None for ``.layers`` beside the image; with ``keep_layers`` they stay there. ``processors`` None
    means all. ``devices`` keeps device nodes, and only root can unpack such an image.
    """

    via: Via = "here"
    srun_args: tuple[str, ...] = ()
    cache: Path | None = None
    devices: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """The options of mksquashfs that determine the file."""
        level = _LEVELS[self.compression] if self.level is None else self.level
        given = () if level is None else ("-Xcompression-level", str(level))
        return ("-comp", self.compression, *given, "-b", "1M")


def squash_fault(settings: BuildSettings) -> LlmbError | None:
    """Why mksquashfs here cannot build with these settings; None if it can, which is tried on an empty image."""
    program = shutil.which("mksquashfs")
    if program is None:
        message = "mksquashfs is not installed on this machine"
        return LlmbError(message, hint=_GET, code="program-missing", key="mksquashfs")
    printed = shell.run([program, "-version"]).out
    found = re.search(r"version (\d+)\.(\d+)", printed)
    if found is None or (int(found[1]), int(found[2])) < NEEDED:
        version = f"{found[1]}.{found[2]}" if found else "unknown"
        message = f"{program} cannot read a tar stream (its version is {version})"
        return LlmbError(message, hint=_GET, code="program-outdated", key="mksquashfs", value=version)
    with tempfile.TemporaryDirectory(prefix="llmb-") as folder:
        log = Path(folder) / "log"
        try:
            with squashing(Path(folder) / "empty", settings, Attributes(), log) as write:
                write(_EMPTY_TAR)
        except LlmbError as error:
            message = f"{program} cannot build with {' '.join(settings.options)}:\n{error.message}"
            level = "choose another level, or none; or " if settings.level is not None else ""
            hint = f"{level}choose another compression: every mksquashfs has gzip; or {_GET}"
            return LlmbError(message, hint=hint, code="compression-unsupported", key=settings.compression)
    return None


def build_stream(
    registry: Registry,
    manifest: Manifest,
    part: Path,
    folder: Path,
    settings: BuildSettings,
    context: Context,
) -> int:
    """Write the image to ``part``, with its layers in ``folder``; the number of device nodes omitted.

    Raises LlmbError.
    """
    config = registry.config(manifest.reference, manifest.config)
    size = sum(layer.size for layer in manifest.layers)
    wanted = {part.parent: size * 9 // 10}  # the disk is certain to fill up with less
    wanted[folder] = wanted.get(folder, 0) + missing_bytes(manifest, folder)
    require_space(wanted)
    once = sum({layer.digest: layer.size for layer in manifest.layers}.values())
    progress = context.progress
    progress.total(once + size)
    count = len(manifest.layers)
    progress.say(f"fetching {count} layer{'s' if count != 1 else ''}, {bytes_in_words(once)}")
    with layers_of(registry, manifest, folder, progress) as layers:
        progress.say(f"writing the image ({' '.join(settings.options)})")
        return write_squashfs(layers, config, part, settings, progress, context.log)


def write_squashfs(
    layers: list[tuple[Layer, Names]],
    config: dict[str, Any],
    part: Path,
    settings: BuildSettings,
    progress: Progress,
    log: Path,
) -> int:
    """Write the image ``part`` from downloaded layers and the image's configuration; result as ``build_stream``."""
    start = config.get("config") or {}
    mtime = 0
    with contextlib.suppress(ValueError):  # the image has no time
        mtime = max(0, int(datetime.fromisoformat(str(config.get("created"))).timestamp()))
    ours = etc_files(start)
    paths = [path.encode() for path in ours]
    our_layer = Names(names=paths, types=FILE * len(paths), links={}, root=None, size=0)
    tree, root = Tree(), Attributes(mtime=mtime)
    for index, (label, found) in enumerate([*((layer.label, found) for layer, found in layers), (_OURS, our_layer)]):
        try:
            tree.apply(index, found.names, found.types, found.links)
        except LlmbError as error:
            raise layer_fault(label, error) from error
        root = found.root or root
    with contextlib.suppress(RefusedError):  # a file has that name, which the container's start will report
        tree.folder(working_folder(start).encode("utf-8", "surrogateescape"), make=True)
    omitted = () if settings.devices else DEVICES
    names, bare = names_by_layer(tree, len(layers) + 1, omitted)
    extra = [
        ExtraFile(names=tuple(names[-1][index]), content=content, mode=0o755 if path == RC else 0o644)
        for index, (path, content) in enumerate(ours.items())
    ]
    devices = sum(1 for _, node in tree.walk() if node.type in omitted)
    del tree  # frees it
    with squashing(part, settings, root, log) as write:
        found_layers = [layer for layer, _ in layers]
        write_image(found_layers, names[:-1], bare, extra, mtime=mtime, write=write, advance=progress.advance)
    return devices


def require_space(needed: Mapping[Path, int]) -> None:
    """Raise LlmbError for a disk with less free space than the ``needed`` bytes of all its folders together.

    A folder that does not exist yet is on the disk of the nearest one above it.
    """
    disks: dict[int, list[Path]] = {}
    for folder in needed:
        disks.setdefault(files.nearest_folder(folder).stat().st_dev, []).append(folder)
    for folders in disks.values():
        total = sum(needed[folder] for folder in folders)
        free = shutil.disk_usage(files.nearest_folder(folders[0])).free
        if total > free:
            where = ", ".join(map(str, folders))
            message = f"{where}: needs {bytes_in_words(total)}, {bytes_in_words(free)} are free"
            hint = f"free space there, or choose {ELSEWHERE}, or --cache DIR for the layers"
            raise LlmbError(message, hint=hint, code="disk-full", value=total)


@contextlib.contextmanager
def squashing(target: Path, settings: BuildSettings, root: Attributes, log: Path) -> Iterator[Write]:
    """Run mksquashfs, which creates the file ``target`` from the tar that is written within the context.

    ``root`` are the attributes of the image's root folder; the output is added to ``log``. Raises LlmbError; an
    exception within the context ends mksquashfs and is raised.
    """
    processors = settings.processors or len(os.sched_getaffinity(0))
    argv = ["mksquashfs", "-", str(target), "-tar", *settings.options, "-noappend", "-exit-on-error"]
    argv += ["-no-progress", "-quiet", "-processors", str(processors)]
    argv += ["-mem", f"{_MEMORY[0] + _MEMORY[1] * processors}M"]
    # With tar input, mksquashfs 4.5 only applies the mode of these options.
    argv += ["-root-mode", f"{root.mode:o}", "-root-uid", str(root.uid), "-root-gid", str(root.gid)]
    argv += ["-root-time", str(root.mtime)]
    with tempfile.TemporaryDirectory(prefix="llmb-") as folder:
        own = Path(folder) / "log"  # on a full disk, `log` would lose the reason of the failure
        # Where mksquashfs ends early, its exit code and output give the reason.
        with contextlib.suppress(BrokenPipeError), shell.feed(argv, own) as (process, write):
            yield write
        output = own.read_text("utf-8", "replace")
    with contextlib.suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as stream:
            stream.write(output)
    if process.returncode != 0:
        raise _failed(process.returncode, output, target, log)


def _failed(status: int, output: str, target: Path, log: Path) -> LlmbError:
    lines = "\n".join(f"  {line}" for line in output.splitlines()[-_TAIL:] if line.strip())
    code = "program-failed"
    if status == -signal.SIGXFSZ:
        what, hint = "mksquashfs exceeded the limit for the size of a file", "raise it: ulimit -f unlimited"
        code = "file-limit"
    elif "No space left" in output or "quota" in output.lower():
        what, hint = f"{target.parent} is full", f"free space there, or choose {ELSEWHERE}"
        code = "disk-full"
    elif status < 0:
        what, hint = f"mksquashfs was ended by {signal.Signals(-status).name}", "give the same command again"
    else:
        what, hint = f"mksquashfs failed with exit code {status}", f"its output is in {log}"
    return LlmbError(f"{what}:\n{lines}" if lines else what, hint=hint, code=code, key="mksquashfs", value=status)
