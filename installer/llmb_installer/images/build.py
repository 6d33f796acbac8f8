# SPDX-License-Identifier: Apache-2.0
"""Builds the image of a reference as one file that appears only when it is complete; a sound one is reused."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import llmb
from llmb.config import images as image_files
from llmb.errors import LlmbError
from llmb.system import locks, shell
from llmb.system.process import ProcessId
from llmb_installer.images import facts as records
from llmb_installer.images.cache import cache_folder, forget
from llmb_installer.images.enroot import build_enroot, enroot_fault
from llmb_installer.images.facts import ImageFacts
from llmb_installer.images.settings import ELSEWHERE, BuildSettings
from llmb_installer.images.squash import build_stream, squash_fault
from llmb_installer.registry import (
    Manifest,
    Reference,
    Registry,
    allows_plain_http,
    architecture_name,
    endpoint_of,
    machine_name,
)
from llmb_installer.step import Progress

_LOCK_WAIT = 0.5  # seconds to wait for another builder before the user can interrupt again


def build(
    reference: str,
    architecture: str,
    target: Path,
    settings: BuildSettings,
    *,
    environ: Mapping[str, str],
    home: Path,
    progress: Progress,
    log: Path,
    update: bool = False,
) -> ImageFacts:
    """Build the image of ``reference`` for ``architecture`` (x86_64 or amd64) as ``target``; its record.

    A sound image is reused, unless ``update`` is set and the registry has another one by now. The builder holds the
    lock of ``target``; others wait and use its result. Raises LlmbError, and leaves ``target`` as it was.
    """
    wanted, architecture = Reference.parse(reference), architecture_name(architecture)
    target = target.expanduser().absolute()
    _make_folder(target.parent)

    with contextlib.ExitStack() as stack:
        _lock(stack, target, progress)
        _remove_parts(target)
        found = _reusable(target, wanted, architecture, progress)
        if found is not None and not update:
            return found
        with Registry(
            wanted.registry, environ=environ, home=home, settings=settings.registry, say=progress.say
        ) as registry:
            manifest = registry.manifest(wanted, architecture)
            if found is not None and found.digest == manifest.digest:
                return found
            return _build(registry, manifest, target, settings, environ, progress, log)


def changed(facts: ImageFacts, manifest: Manifest) -> bool:
    """Whether the registry has another image by now than the one that was built."""
    return facts.digest is not None and facts.digest != manifest.digest


def choose_builder(settings: BuildSettings) -> str:
    """``stream`` or ``enroot``, by the settings and the programs on this host. Raises LlmbError without either."""
    if settings.builder == "enroot" or (settings.builder == "auto" and settings.via == "srun"):
        fault = enroot_fault(settings)
        if fault is not None:
            raise fault
        return "enroot"
    fault = squash_fault(settings)
    if fault is None:
        return "stream"
    if settings.builder == "auto" and enroot_fault(settings) is None:
        return "enroot"
    raise fault


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{folder} cannot be created: {error.strerror}"
        raise LlmbError(message, hint=f"choose {ELSEWHERE}", code="folder-unwritable", key=str(folder)) from error


def _lock(stack: contextlib.ExitStack, target: Path, progress: Progress) -> None:
    """Hold the lock of ``target`` as long as ``stack`` is open; report which process holds it before."""
    is_reported = False

    def on_wait(owner: ProcessId) -> None:
        nonlocal is_reported
        if not is_reported:
            progress.say(f"waiting for process {owner.pid} on {owner.host}, which builds {target.name}")
        is_reported = True

    while True:
        try:
            stack.enter_context(locks.hold(target.parent, f".{target.name}", wait=_LOCK_WAIT, on_wait=on_wait))
            return
        except locks.LockHeldError:
            progress.advance(0)


def _remove_parts(target: Path) -> None:
    """Remove what killed builds of this image left; the caller holds its lock."""
    for name in (target.name, records.facts_path(target).name):
        for path in target.parent.glob(f".{name}.*.part"):
            path.unlink(missing_ok=True)


def _reusable(target: Path, reference: Reference, architecture: str, progress: Progress) -> ImageFacts | None:
    """The record of ``target`` if it is sound and the wanted image; None if it must be built.

    Raises LlmbError for another image, which is not overwritten.
    """
    if not target.exists():
        return None
    facts, fault = _inspect(target)
    if fault is None and facts is None:
        facts, fault = _adopt(target, reference, architecture, progress)
    if facts is not None and str(Reference.parse(facts.reference)) != str(reference):
        message, hint = f"{target} is the image {facts.reference}, not {reference}", f"remove it, or choose {ELSEWHERE}"
        raise LlmbError(message, hint=hint, code="image-differs", key=str(target), value=facts.reference)
    if fault is None and facts is not None and facts.architecture not in (None, architecture):
        fault = f"it is for {machine_name(facts.architecture)}, but the nodes are {machine_name(architecture)}"
    if fault is not None:
        progress.say(f"{target}: {fault}; building it again")
        return None
    return facts


def _inspect(target: Path) -> tuple[ImageFacts | None, str | None]:
    """The record of an image, and what is wrong with its file."""
    fault = image_files.superblock_fault(target)
    try:
        facts = records.read_facts(target)
    except LlmbError:
        return None, fault  # as without a record
    if fault is None and facts is not None:
        faults = records.compare(target, facts, deep=False)
        fault = faults[0] if faults else None
        mtime = target.stat().st_mtime_ns
        if fault is None and facts.mtime_ns != mtime:  # it was copied, and its content has just been compared
            facts = replace(facts, mtime_ns=mtime)
            records.write_facts(target, facts)
    return facts, fault


def _adopt(
    target: Path, reference: Reference, architecture: str, progress: Progress
) -> tuple[ImageFacts | None, str | None]:
    """Write a record for an image without one, after the checks that are possible."""
    progress.say(f"{target} has no record: checking it")
    if (program := shutil.which("unsquashfs")) and shell.run([program, "-s", str(target)]).code != 0:
        return None, "unsquashfs cannot read it"
    found = records.architecture_of(target)
    if found not in (None, architecture):
        return None, f"its programs are for {machine_name(found)}, but the nodes are {machine_name(architecture)}"
    facts = _facts_of(target, reference, architecture=found, builder="unknown", adopted=True)
    records.write_facts(target, facts)
    progress.say(f"{target} passed all possible checks and is used as {reference}")
    return facts, None


def _facts_of(file: Path, reference: Reference, **known: Any) -> ImageFacts:
    """The record of the image in ``file``, built or adopted now; ``known`` are further fields."""
    stat = file.stat()
    return ImageFacts(
        reference=str(reference),
        sha256=records.sha256(file),
        size=stat.st_size,
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        llmb=llmb.__version__,
        mtime_ns=stat.st_mtime_ns,
        **{"index_digest": None, "digest": None, "options": (), **known},
    )


def _build(
    registry: Registry,
    manifest: Manifest,
    target: Path,
    settings: BuildSettings,
    environ: Mapping[str, str],
    progress: Progress,
    log: Path,
) -> ImageFacts:
    builder = choose_builder(settings)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    folder = cache_folder(target, settings)
    devices = 0
    try:
        if builder == "stream":
            devices = build_stream(registry, manifest, part, folder, settings, progress, log)
        else:
            where = ", through srun on a node" if settings.via == "srun" else ""
            progress.say(f"enroot import writes {target}{where}")
            endpoint = endpoint_of(manifest.reference.registry, settings.registry)
            is_plain = allows_plain_http(endpoint.host, settings.registry)
            own = folder if settings.cache is not None else None
            build_enroot(manifest.reference, manifest.architecture, part, own, settings, environ, log, plain=is_plain)
        facts = _finish(part, target, manifest, settings, builder, devices)
    except OSError as error:
        message, hint = f"{target} cannot be written: {error.strerror}", "free space or fix the permissions there"
        raise LlmbError(message, hint=hint, code="file-unwritable", key=str(target)) from error
    finally:
        with contextlib.suppress(OSError):
            _remove_parts(target)
    if not settings.keep_layers:
        forget(folder)
    if devices:
        progress.say(f"{devices} device nodes are omitted: with them, only root could unpack the image")
    return facts


def _finish(
    part: Path, target: Path, manifest: Manifest, settings: BuildSettings, builder: str, devices: int
) -> ImageFacts:
    """Check the image, write its record, and rename it.

    The record comes first: an older image beside it is detected and built again; one without a record would be adopted.
    """
    fault = image_files.superblock_fault(part)
    if fault is not None:
        message = f"the image of {manifest.reference} was written, but {fault}"
        raise LlmbError(message, hint="give the same command again", code="image-damaged", key=str(manifest.reference))
    found = records.architecture_of(part)
    if found not in (None, manifest.architecture):
        claimed, actual = machine_name(manifest.architecture), machine_name(found)
        message = f"{manifest.reference} claims to be for {claimed}, but its programs are for {actual}"
        hint = "the image in the registry is wrong: report it to its publisher"
        raise LlmbError(message, hint=hint, code="architecture-wrong", key=str(manifest.reference), value=actual)
    _sync(part)
    facts = _facts_of(
        part,
        manifest.reference,
        index_digest=manifest.index_digest,
        digest=manifest.digest,
        architecture=manifest.architecture,
        options=settings.options,
        builder=builder,
        devices_left_out=devices,
    )
    records.write_facts(target, facts)
    part.replace(target)
    _sync(target.parent)
    return facts


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
