# SPDX-License-Identifier: Apache-2.0
"""Builds the image of a reference as one file, which appears only when it is complete; reuses a valid file."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from llmb.config.images import superblock_fault
from llmb.errors import LlmbError, os_errors
from llmb.system import files, locks, process, shell
from llmb_installer.images import facts as records
from llmb_installer.images.enroot import build_enroot, enroot_fault
from llmb_installer.images.layer import cache_folder
from llmb_installer.images.squash import ELSEWHERE, BuildSettings, build_stream, squash_fault
from llmb_installer.registry.client import Registry
from llmb_installer.registry.manifests import Manifest, architecture_name, machine_name
from llmb_installer.registry.reference import Reference
from llmb_installer.step import Context, Progress

_LOCK_WAIT = 0.5  # seconds to wait for another builder before the user can interrupt again


def build(
    reference: str,
    architecture: str,
    target: Path,
    settings: BuildSettings,
    context: Context,
    *,
    update: bool = False,
) -> records.ImageFacts:
    """Build the image of ``reference`` for ``architecture`` (x86_64 or amd64) as ``target``; its record.

    A sound image is reused, unless ``update`` is set and the registry has another one by now. The builder holds the
    lock of ``target``; others wait and use its result. Raises LlmbError, and leaves ``target`` as it was.
    """
    wanted, architecture, progress = Reference.parse(reference), architecture_name(architecture), context.progress
    target = files.expand(target).absolute()
    folder = target.parent
    with os_errors(
        f"{folder} cannot be created", hint=f"choose {ELSEWHERE}", code="folder-unwritable", key=str(folder)
    ):
        folder.mkdir(parents=True, exist_ok=True)
    with _locked(target, progress):
        _remove_parts(target)
        found = _reusable(target, wanted, architecture, progress)
        if found is not None and not update:
            return found
        with Registry(
            wanted.registry, environ=context.environ, home=context.home, settings=settings, say=progress.say
        ) as registry:
            manifest = registry.manifest(wanted, architecture)
            if found is not None and found.digest == manifest.digest:
                return found
            return _build(registry, manifest, target, settings, context)


def choose_builder(settings: BuildSettings) -> str:
    """``stream`` or ``enroot``, by the settings and the programs on this host. Raises LlmbError without either."""
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
def _locked(target: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of ``target``; report which process holds it before."""
    is_reported = False

    def on_wait(owner: process.ProcessId) -> None:
        nonlocal is_reported
        if not is_reported:
            progress.say(f"waiting for process {owner.pid} on {owner.host}, which builds {target.name}")
        is_reported = True

    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locks.hold(target.parent, f".{target.name}", wait=_LOCK_WAIT, on_wait=on_wait))
                break
            except locks.LockHeldError:
                progress.advance(0)
        yield


def _remove_parts(target: Path) -> None:
    """Remove what killed builds of this image left; the caller holds its lock."""
    for name in (target.name, records.facts_path(target).name):
        for path in target.parent.glob(f".{name}.*.part"):
            path.unlink(missing_ok=True)


def _reusable(target: Path, reference: Reference, architecture: str, progress: Progress) -> records.ImageFacts | None:
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


def _inspect(target: Path) -> tuple[records.ImageFacts | None, str | None]:
    """The record of an image, and what is wrong with its file."""
    damage = superblock_fault(target)
    try:
        facts = records.read_facts(target)
    except LlmbError:
        facts = None  # as without a record
    if damage is None and facts is not None:
        damage = records.compare(target, facts, deep=False)
        mtime = target.stat().st_mtime_ns
        if damage is None and facts.mtime_ns != mtime:  # it was copied, and its content has just been compared
            facts = replace(facts, mtime_ns=mtime)
            records.write_facts(target, facts)
    return facts, damage.message if damage is not None else None


def _adopt(
    target: Path, reference: Reference, architecture: str, progress: Progress
) -> tuple[records.ImageFacts | None, str | None]:
    """Write a record for an image without one, after the checks that are possible."""
    progress.say(f"{target} has no record: checking it")
    if (program := shutil.which("unsquashfs")) and shell.run([program, "-s", str(target)]).code != 0:
        return None, "unsquashfs cannot read it"
    found = records.architecture_of(target)
    if found not in (None, architecture):
        return None, f"its programs are for {machine_name(found)}, but the nodes are {machine_name(architecture)}"
    facts = records.facts_of(target, str(reference), architecture=found, builder="unknown", adopted=True)
    records.write_facts(target, facts)
    progress.say(f"{target} passed all possible checks and is used as {reference}")
    return facts, None


def _build(
    registry: Registry, manifest: Manifest, target: Path, settings: BuildSettings, context: Context
) -> records.ImageFacts:
    builder, progress = choose_builder(settings), context.progress
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    folder = cache_folder(target, settings.cache)
    devices, hint = 0, "free space or fix the permissions there"
    try:
        with os_errors(f"{target} cannot be written", hint=hint, code="file-unwritable", key=str(target)):
            if builder == "stream":
                devices = build_stream(registry, manifest, part, folder, settings, context)
            else:
                where = ", through srun on a node" if settings.via == "srun" else ""
                progress.say(f"enroot import writes {target}{where}")
                own = folder if settings.cache is not None else None
                build_enroot(manifest.reference, manifest.architecture, part, own, settings, context)
            facts = _finish(part, target, manifest, settings, builder, devices)
    finally:
        with contextlib.suppress(OSError):
            _remove_parts(target)
    if not settings.keep_layers:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another image may have layers there
            folder.parent.rmdir()
    if devices:
        progress.say(f"{devices} device nodes are omitted: with them, only root could unpack the image")
    return facts


def _finish(
    part: Path, target: Path, manifest: Manifest, settings: BuildSettings, builder: str, devices: int
) -> records.ImageFacts:
    """Check the image, write its record, and rename it.

    The record comes first: an older image beside it is detected and built again; one without a record would be adopted.
    """
    if (fault := superblock_fault(part)) is not None:
        message = f"the image of {manifest.reference} was written, but {fault.message}"
        raise LlmbError(message, hint="give the same command again", code="image-damaged", key=str(manifest.reference))
    found = records.architecture_of(part)
    if found not in (None, manifest.architecture):
        claimed, actual = machine_name(manifest.architecture), machine_name(found)
        message = f"{manifest.reference} claims to be for {claimed}, but its programs are for {actual}"
        hint = "the image in the registry is wrong: report it to its publisher"
        raise LlmbError(message, hint=hint, code="architecture-wrong", key=str(manifest.reference), value=actual)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    facts = records.facts_of(
        part,
        str(manifest.reference),
        index_digest=manifest.index_digest,
        digest=manifest.digest,
        architecture=manifest.architecture,
        options=settings.options,
        builder=builder,
        devices_left_out=devices,
    )
    records.write_facts(target, facts)
    part.replace(target)
    files.sync_folder(target.parent)
    return facts
