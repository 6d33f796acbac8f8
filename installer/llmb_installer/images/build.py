# SPDX-License-Identifier: Apache-2.0
"""Builds the image of a reference once, whole or not at all; one that is there is checked and used."""

import contextlib
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import llmb
from llmb.config import images as image_files
from llmb.errors import LlmbError
from llmb.system import locks
from llmb.system.process import ProcessId
from llmb_installer.images import whole
from llmb_installer.images.architecture import architecture_of
from llmb_installer.images.cache import cache_folder, forget
from llmb_installer.images.enroot import build_enroot, enroot_fault
from llmb_installer.images.existing import usable
from llmb_installer.images.facts import ImageFacts, facts_path, write_facts
from llmb_installer.images.settings import ELSEWHERE, BuildSettings, Progress
from llmb_installer.images.squash import squash_fault
from llmb_installer.images.stream import build_stream
from llmb_installer.registry.client import Registry
from llmb_installer.registry.endpoint import may_be_plain, place_of
from llmb_installer.registry.manifests import Manifest, architecture_name, machine_name
from llmb_installer.registry.reference import Reference

_LOOK = 0.5  # seconds to wait for another builder of the same image before the user can interrupt again


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
    """Have the image of ``reference`` for ``architecture`` (x86_64 or amd64) at ``target``; what is recorded of it.

    An image that is there and whole is used, unless ``update`` finds that the registry has another one by now. Who
    builds has the lock of ``target``; others wait for it and use what it made. Raises LlmbError; ``target`` is then as
    it was.
    """
    wanted, architecture = Reference.parse(reference), architecture_name(architecture)
    target = target.expanduser().absolute()
    _make_folder(target.parent)

    with contextlib.ExitStack() as stack:
        _lock(stack, target, progress)
        _sweep(target)
        found = usable(target, wanted, architecture, progress)
        if found is not None and not update:
            return found
        with Registry(
            wanted.registry, environ=environ, home=home, settings=settings.registry, say=progress.say
        ) as registry:
            manifest = registry.manifest(wanted, architecture)
            if found is not None and found.digest == manifest.digest:
                return found
            return _build(registry, manifest, target, settings, environ, progress, log)


def _lock(stack: contextlib.ExitStack, target: Path, progress: Progress) -> None:
    """Take the lock of ``target``, for as long as ``stack`` is open; say for whom that has to wait."""
    told = False

    def on_wait(owner: ProcessId) -> None:
        nonlocal told
        if not told:
            progress.say(f"waiting for process {owner.pid} on {owner.host}, which builds {target.name}")
        told = True

    while True:
        try:
            stack.enter_context(locks.hold(target.parent, f".{target.name}", wait=_LOOK, on_wait=on_wait))
            return
        except locks.LockHeldError:
            progress.advance(0)


def changed(facts: ImageFacts, manifest: Manifest) -> bool:
    """Whether the registry has another image by now under the name that one was built from."""
    return facts.digest is not None and facts.digest != manifest.digest


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
            place = place_of(manifest.reference.registry, settings.registry)
            plain = may_be_plain(place.host, settings.registry)
            own = folder if settings.cache is not None else None
            build_enroot(manifest.reference, manifest.architecture, part, own, settings, environ, log, plain=plain)
        facts = _finish(part, target, manifest, settings, builder, devices)
    except OSError as error:
        raise LlmbError(
            f"{target} cannot be written: {error.strerror}", hint="free space or permission there"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            _sweep(target)
    if not settings.keep_layers:
        forget(folder)
    if devices:
        progress.say(f"{devices} device nodes are left out: with them, only root could unpack the image")
    return facts


def choose_builder(settings: BuildSettings) -> str:
    """``stream`` or ``enroot``, as the settings say and this host can. Raises LlmbError when it can neither."""
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


def _finish(
    part: Path, target: Path, manifest: Manifest, settings: BuildSettings, builder: str, devices: int
) -> ImageFacts:
    """Check the image, write its record, and put it in place.

    The record comes first: an image that is older than it is found out and built again, one without a record would be
    taken over.
    """
    fault = image_files.superblock_fault(part)
    if fault is not None:
        raise LlmbError(f"the image of {manifest.reference} was written, but {fault}", hint="give the command again")
    found = architecture_of(part)
    if found not in (None, manifest.architecture):
        said, real = machine_name(manifest.architecture), machine_name(found)
        message = f"{manifest.reference} says it is for {said}, but its programs are for {real}"
        raise LlmbError(message, hint="the image in the registry is wrong; tell who publishes it")
    whole.sync(part)
    stat = part.stat()
    facts = ImageFacts(
        reference=str(manifest.reference),
        index_digest=manifest.index_digest,
        digest=manifest.digest,
        architecture=manifest.architecture,
        options=settings.options,
        sha256=whole.sha256(part),
        size=stat.st_size,
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        llmb=llmb.__version__,
        builder=builder,
        mtime_ns=stat.st_mtime_ns,
        devices_left_out=devices,
    )
    write_facts(target, facts)
    part.replace(target)
    whole.sync(target.parent)
    return facts


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LlmbError(f"{folder} cannot be made: {error.strerror}", hint=f"choose {ELSEWHERE}") from error


def _sweep(target: Path) -> None:
    """Remove what killed builds of this image have left; under its lock."""
    for path in [
        *target.parent.glob(f".{target.name}.*.part"),
        *target.parent.glob(f".{facts_path(target).name}.*.part"),
    ]:
        path.unlink(missing_ok=True)
