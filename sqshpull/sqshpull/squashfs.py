# SPDX-License-Identifier: Apache-2.0
"""Builds an image by streaming its layers into mksquashfs, without root and without unpacking."""

import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from sqshpull import files, programs
from sqshpull.errors import OTHER_CACHE, OTHER_FILE, PullError
from sqshpull.files import bytes_in_words
from sqshpull.image_tar import RC, ExtraFile, etc_files, working_folder, write_image
from sqshpull.layers import FetchedLayer, LayerNames, layer_fault, layers_of, missing_bytes
from sqshpull.manifests import ImageManifest
from sqshpull.merge_layers import ImageTree, LayerRefusedError, names_by_layer
from sqshpull.registry import Registry
from sqshpull.settings import PullProgress, PullSettings
from sqshpull.tar import BLOCK, DEVICES, FILE, Attributes

Write = Callable[[bytes | memoryview], None]
NEEDED = (4, 5)  # the first version that reads tar from its standard input
_EMPTY_TAR = bytes(2 * BLOCK)
_GET = (
    "install squashfs-tools 4.5 or newer (your cluster may have it as a module), or choose the"
    " builder 'enroot'"
)
_TAIL = 8  # lines of its output that an error shows
_MEMORY = 1024, 32  # MiB for mksquashfs: the base, and for each processor
_OURS = "the files in /etc for enroot"


def squash_fault(settings: PullSettings) -> PullError | None:
    """Return why mksquashfs here cannot build with these settings, None if it can.

    It is tried on an empty image.
    """
    program = shutil.which("mksquashfs")
    if program is None:
        message = "mksquashfs is not installed on this machine"
        return PullError(message, hint=_GET, code="program-missing", key="mksquashfs")
    printed = programs.run([program, "-version"]).out
    version_match = re.search(r"version (\d+)\.(\d+)", printed)
    if version_match is None or (int(version_match[1]), int(version_match[2])) < NEEDED:
        version = f"{version_match[1]}.{version_match[2]}" if version_match else "unknown"
        message = f"{program} cannot read a tar stream (its version is {version})"
        return PullError(
            message, hint=_GET, code="program-outdated", key="mksquashfs", value=version
        )
    with tempfile.TemporaryDirectory(prefix="sqshpull-") as folder:
        log = Path(folder) / "log"
        try:
            with squashing(Path(folder) / "empty", settings, Attributes(), log) as write:
                write(_EMPTY_TAR)
        except PullError as error:
            message = f"{program} cannot build with {' '.join(settings.options)}:\n{error.message}"
            level = "choose another level, or none; or " if settings.level is not None else ""
            hint = f"{level}choose another compression: every mksquashfs has gzip; or {_GET}"
            return PullError(
                message, hint=hint, code="compression-unsupported", key=settings.compression
            )
    return None


def build_stream(
    registry: Registry,
    manifest: ImageManifest,
    part: Path,
    folder: Path,
    settings: PullSettings,
    progress: PullProgress,
    log: Path,
) -> int:
    """Write the image to ``part``, with its layers in ``folder``.

    Returns the number of device nodes that are omitted. Raises PullError.
    """
    config = registry.config(manifest.reference, manifest.config)
    size = sum(layer.size for layer in manifest.layers)
    needed_bytes = {part.parent: size * 9 // 10}  # the disk is certain to fill up with less
    needed_bytes[folder] = needed_bytes.get(folder, 0) + missing_bytes(manifest, folder)
    require_space(needed_bytes)
    fetched_bytes = sum({layer.digest: layer.size for layer in manifest.layers}.values())
    progress.total(fetched_bytes + size)
    count = len(manifest.layers)
    progress.say(
        f"fetching {count} layer{'s' if count != 1 else ''}, {bytes_in_words(fetched_bytes)}"
    )
    with layers_of(registry, manifest, folder, progress) as layers:
        progress.say(f"writing the image ({' '.join(settings.options)})")
        return write_squashfs(layers, config, part, settings, progress, log)


def write_squashfs(
    layers: list[tuple[FetchedLayer, LayerNames]],
    config: dict[str, Any],
    part: Path,
    settings: PullSettings,
    progress: PullProgress,
    log: Path,
) -> int:
    """Write the image ``part`` from downloaded layers and the image's configuration.

    Returns the number of device nodes that are omitted.
    """
    start = config.get("config") or {}
    mtime = 0
    with contextlib.suppress(ValueError):  # the image has no time
        mtime = max(0, int(datetime.fromisoformat(str(config.get("created"))).timestamp()))
    enroot_files = etc_files(start)
    paths = [path.encode() for path in enroot_files]
    enroot_layer = LayerNames(names=paths, types=FILE * len(paths), links={}, root=None, size=0)
    tree, root = ImageTree(), Attributes(mtime=mtime)
    for index, (label, layer_names) in enumerate(
        [*((layer.label, layer_names) for layer, layer_names in layers), (_OURS, enroot_layer)]
    ):
        try:
            tree.apply(index, layer_names.names, layer_names.types, layer_names.links)
        except PullError as error:
            raise layer_fault(label, error) from error
        root = layer_names.root or root
    # a file has that name, which the container's start will report
    with contextlib.suppress(LayerRefusedError):
        tree.folder(working_folder(start).encode("utf-8", "surrogateescape"), make=True)
    omitted = () if settings.devices else DEVICES
    names, folders = names_by_layer(tree, len(layers) + 1, omitted)
    extra = [
        ExtraFile(
            names=tuple(names[-1][index]), content=content, mode=0o755 if path == RC else 0o644
        )
        for index, (path, content) in enumerate(enroot_files.items())
    ]
    devices = sum(1 for _, node in tree.walk() if node.type in omitted)
    del tree  # frees it
    with squashing(part, settings, root, log) as write:
        fetched_layers = [layer for layer, _ in layers]
        write_image(
            fetched_layers,
            names[:-1],
            folders,
            extra,
            mtime=mtime,
            write=write,
            advance=progress.advance,
        )
    return devices


def require_space(needed: Mapping[Path, int]) -> None:
    """Raise PullError for a disk with less free space than all its folders need together, in bytes.

    A folder that does not exist yet is on the disk of the nearest one above it.
    """
    disks: dict[int, list[Path]] = {}
    for folder in needed:
        disks.setdefault(files.nearest_folder(folder).stat().st_dev, []).append(folder)
    for folders in disks.values():
        total = sum(needed[folder] for folder in folders)
        free = shutil.disk_usage(files.nearest_folder(folders[0])).free
        if total > free:
            places = ", ".join(map(str, folders))
            message = f"{places}: needs {bytes_in_words(total)}, {bytes_in_words(free)} are free"
            hint = f"free space there, or choose {OTHER_FILE}, or {OTHER_CACHE}"
            raise PullError(message, hint=hint, code="disk-full", value=total)


@contextlib.contextmanager
def squashing(target: Path, settings: PullSettings, root: Attributes, log: Path) -> Iterator[Write]:
    """Run mksquashfs, which creates ``target`` from the tar that is written within the context.

    ``root`` are the attributes of the image's root folder. The output is added to ``log``. Raises
    PullError. An exception within the context ends mksquashfs and is raised.
    """
    processors = settings.processors or len(os.sched_getaffinity(0))
    argv = [
        "mksquashfs",
        "-",
        str(target),
        "-tar",
        *settings.options,
        "-noappend",
        "-exit-on-error",
    ]
    argv += ["-no-progress", "-quiet", "-processors", str(processors)]
    argv += ["-mem", f"{_MEMORY[0] + _MEMORY[1] * processors}M"]
    # With tar input, mksquashfs 4.5 only applies the mode of these options.
    argv += ["-root-mode", f"{root.mode:o}", "-root-uid", str(root.uid), "-root-gid", str(root.gid)]
    argv += ["-root-time", str(root.mtime)]
    with tempfile.TemporaryDirectory(prefix="sqshpull-") as folder:
        own_log = Path(folder) / "log"  # on a full disk, `log` would lose the reason of the failure
        # Where mksquashfs ends early, its exit code and output give the reason.
        with contextlib.suppress(BrokenPipeError), programs.feed(argv, own_log) as (process, write):
            yield write
        output = own_log.read_text("utf-8", "replace")
    with contextlib.suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as stream:
            stream.write(output)
    if process.returncode != 0:
        raise _failed(process.returncode, output, target, log)


def _failed(status: int, output: str, target: Path, log: Path) -> PullError:
    lines = "\n".join(f"  {line}" for line in output.splitlines()[-_TAIL:] if line.strip())
    code = "program-failed"
    if status == -signal.SIGXFSZ:
        message, hint = (
            "mksquashfs exceeded the limit for the size of a file",
            "raise it: ulimit -f unlimited",
        )
        code = "file-limit"
    elif "No space left" in output or "quota" in output.lower():
        message, hint = f"{target.parent} is full", f"free space there, or choose {OTHER_FILE}"
        code = "disk-full"
    elif status < 0:
        message, hint = (
            f"mksquashfs was ended by {signal.Signals(-status).name}",
            "give the same command again",
        )
    else:
        message, hint = f"mksquashfs failed with exit code {status}", f"its output is in {log}"
    return PullError(
        f"{message}:\n{lines}" if lines else message,
        hint=hint,
        code=code,
        key="mksquashfs",
        value=status,
    )
