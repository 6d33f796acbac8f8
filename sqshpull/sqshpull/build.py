# SPDX-License-Identifier: Apache-2.0
"""Pulls an image to one file, which appears only when it is complete. A sound file is reused."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sqshpull import files, programs, record as records
from sqshpull.enroot import build_enroot, enroot_fault
from sqshpull.errors import OTHER_FILE, PullError, os_errors
from sqshpull.layers import cache_folder
from sqshpull.manifests import ImageManifest, architecture_name, machine_name
from sqshpull.record import ImageRecord
from sqshpull.reference import ImageReference
from sqshpull.registry import Registry
from sqshpull.settings import PullProgress, PullSettings, PullUser, SilentProgress
from sqshpull.squashfs import build_stream, squash_fault


def pull(
    reference: str,
    target: Path,
    *,
    architecture: str | None = None,
    settings: PullSettings | None = None,
    user: PullUser | None = None,
    progress: PullProgress | None = None,
    log: Path | None = None,
    update: bool = False,
) -> ImageRecord:
    """Build the image of ``reference`` as the squashfs file ``target``, and return its record.

    ``architecture`` is x86_64, amd64, aarch64, ...: None for this machine's. ``log`` gets the
    output of mksquashfs or enroot: None for a hidden file beside ``target``, removed after success.

    A sound image is reused, unless ``update`` is set and the registry has another one by now. Of
    several builders of one file, one builds and the others wait and use its result. Raises
    PullError, and leaves ``target`` as it was.
    """
    parsed, wanted_architecture = ImageReference.parse(reference), architecture_name(architecture)
    settings, user = settings or PullSettings(), user or PullUser()
    progress = progress or SilentProgress()
    target = files.expand(target).absolute()
    folder = target.parent
    with os_errors(
        f"{folder} cannot be created",
        hint=f"choose {OTHER_FILE}",
        code="folder-unwritable",
        key=str(folder),
    ):
        folder.mkdir(parents=True, exist_ok=True)
    own_log = target.with_name(f".{target.name}.log")
    with _locked(target, progress):
        _remove_parts(target)
        present = _reusable(target, parsed, wanted_architecture, progress)
        if present is not None and not update:
            record = present
        else:
            with Registry(
                parsed.registry, user=user, settings=settings, say=progress.say
            ) as registry:
                manifest = registry.manifest(parsed, wanted_architecture)
                if present is not None and present.digest == manifest.digest:
                    record = present
                else:
                    record = _build(
                        registry, manifest, target, settings, user, progress, log or own_log
                    )
        if log is None:
            own_log.unlink(missing_ok=True)  # also of a build that was killed
        return record


def choose_builder(settings: PullSettings) -> str:
    """Return ``stream`` or ``enroot``, by the settings and the programs on this host.

    Raises PullError without either.
    """
    if settings.builder == "enroot" or (settings.builder == "auto" and settings.via == "srun"):
        if (fault := enroot_fault(settings)) is not None:
            raise fault
        return "enroot"
    if (fault := squash_fault(settings)) is None:
        return "stream"
    if settings.builder == "auto" and enroot_fault(settings) is None:
        return "enroot"
    raise fault


@contextlib.contextmanager
def _locked(target: Path, progress: PullProgress) -> Iterator[None]:
    """Hold the lock of ``target``. While waiting, the progress may stop the pull."""

    def on_wait(owner: str) -> None:
        progress.say(f"waiting for {owner}, which builds {target.name}")

    lock = target.with_name(f".{target.name}.lock")
    with files.locked(lock, on_wait, lambda: progress.advance(0)):
        yield


def _remove_parts(target: Path) -> None:
    """Remove what killed builds of this image left. The caller holds its lock."""
    for name in (target.name, records.record_path(target).name):
        for path in target.parent.glob(f".{name}.*.part"):
            path.unlink(missing_ok=True)


def _reusable(
    target: Path, reference: ImageReference, architecture: str, progress: PullProgress
) -> ImageRecord | None:
    """Return the record of ``target`` if it is sound and the wanted image, None to build it.

    Raises PullError for another image, which is not overwritten.
    """
    if not target.exists():
        return None
    record, fault = _inspect(target)
    if fault is None and record is None:
        record, fault = _adopt(target, reference, architecture, progress)
    if record is not None and str(ImageReference.parse(record.reference)) != str(reference):
        message = f"{target} is the image {record.reference}, not {reference}"
        hint = f"remove it, or choose {OTHER_FILE}"
        raise PullError(
            message, hint=hint, code="image-differs", key=str(target), value=record.reference
        )
    if fault is None and record is not None and record.architecture not in (None, architecture):
        actual = machine_name(record.architecture)
        fault = f"it is for {actual}, not for {machine_name(architecture)}"
    if fault is not None:
        progress.say(f"{target}: {fault}; building it again")
        return None
    return record


def _inspect(target: Path) -> tuple[ImageRecord | None, str | None]:
    """Return the record of an image, and what is wrong with its file."""
    damage = records.superblock_fault(target)
    try:
        record = records.read_record(target)
    except PullError:
        record = None  # as without a record
    if damage is None and record is not None:
        damage = records.compare(target, record, deep=False)
        mtime = target.stat().st_mtime_ns
        # It was copied, and its content has just been compared.
        if damage is None and record.mtime_ns != mtime:
            record = replace(record, mtime_ns=mtime)
            _write_record(target, record)
    return record, damage.message if damage is not None else None


def _adopt(
    target: Path, reference: ImageReference, architecture: str, progress: PullProgress
) -> tuple[ImageRecord | None, str | None]:
    """Write a record for an image without one, after the checks that are possible."""
    progress.say(f"{target} has no record: checking it")
    program = shutil.which("unsquashfs")
    if program is not None and programs.run([program, "-s", str(target)]).code != 0:
        return None, "unsquashfs cannot read it"
    actual = records.architecture_of(target)
    if actual not in (None, architecture):
        wanted = machine_name(architecture)
        return None, f"its programs are for {machine_name(actual)}, not for {wanted}"
    record = records.record_of(
        target, str(reference), architecture=actual, builder="unknown", adopted=True
    )
    _write_record(target, record)
    progress.say(f"{target} passed all possible checks and is used as {reference}")
    return record, None


def _write_record(target: Path, record: ImageRecord) -> None:
    path, hint = records.record_path(target), "check free space and permissions there"
    with os_errors(f"{path} cannot be written", hint=hint, code="file-unwritable", key=str(path)):
        records.write_record(target, record)


def _build(
    registry: Registry,
    manifest: ImageManifest,
    target: Path,
    settings: PullSettings,
    user: PullUser,
    progress: PullProgress,
    log: Path,
) -> ImageRecord:
    builder = choose_builder(settings)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    folder = cache_folder(target, settings.cache)
    devices, hint = 0, "free space or fix the permissions there"
    try:
        with os_errors(
            f"{target} cannot be written", hint=hint, code="file-unwritable", key=str(target)
        ):
            if builder == "stream":
                devices = build_stream(registry, manifest, part, folder, settings, progress, log)
            else:
                place = ", through srun on a node" if settings.via == "srun" else ""
                progress.say(f"enroot import writes {target}{place}")
                enroot_folder = folder if settings.cache is not None else None
                build_enroot(
                    manifest.reference,
                    manifest.architecture,
                    part,
                    enroot_folder,
                    settings,
                    user.environ,
                    log,
                )
            record = _finish(part, target, manifest, settings, builder, devices)
    finally:
        with contextlib.suppress(OSError):
            _remove_parts(target)
    if not settings.keep_layers:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another image may have layers there
            folder.parent.rmdir()
    if devices:
        progress.say(
            f"{devices} device nodes are omitted: with them, only root could unpack the image"
        )
    return record


def _finish(
    part: Path,
    target: Path,
    manifest: ImageManifest,
    settings: PullSettings,
    builder: str,
    devices: int,
) -> ImageRecord:
    """Check the image, write its record, and rename it.

    The record comes first: an older image beside it is detected and built again. An image without a
    record would be adopted.
    """
    reference = str(manifest.reference)
    if (fault := records.superblock_fault(part)) is not None:
        message = f"the image of {reference} was written, but {fault.message}"
        hint = "give the same command again"
        raise PullError(message, hint=hint, code="image-damaged", key=reference)
    architecture = records.architecture_of(part)
    if architecture not in (None, manifest.architecture):
        claimed, actual = machine_name(manifest.architecture), machine_name(architecture)
        message = f"{reference} claims to be for {claimed}, but its programs are for {actual}"
        hint = "the image in the registry is wrong: report it to its publisher"
        raise PullError(message, hint=hint, code="architecture-wrong", key=reference, value=actual)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    record = records.record_of(
        part,
        reference,
        index_digest=manifest.index_digest,
        digest=manifest.digest,
        architecture=manifest.architecture,
        options=settings.options,
        builder=builder,
        devices_left_out=devices,
    )
    records.write_record(target, record)
    part.replace(target)
    files.sync_folder(target.parent)
    return record
