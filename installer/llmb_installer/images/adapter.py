# SPDX-License-Identifier: Apache-2.0
"""Calls sqshpull for the installer: with llmb's secrets, locks, permissions, errors and hints."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from llmb.core import files, locks, permissions, process, secrets, shell
from llmb.errors import Fault, LlmbError, PreflightError, UsageError, as_fault, os_errors
from llmb_installer.images.libraries import libraries_in
from llmb_installer.step import BuildContext, Progress
from sqshpull import errors, record
from sqshpull.manifests import ImageManifest
from sqshpull.record import ImageRecord
from sqshpull.settings import PullSettings, PullUser, RegistrySettings, SecretStore

if TYPE_CHECKING:
    from sqshpull.registry import Sleep

_LOCK_WAIT = 0.5  # seconds to wait for another builder before the user can interrupt again
# faults that several images may share
_SHARED_FAULTS = ("host-unreachable", "credentials-refused", "credentials-missing")
# The names of settings in sqshpull's hints, and the installer's.
_SETTINGS = {
    errors.OTHER_FILE: "another folder (image_folder in the answers, -o FILE)",
    errors.ALLOW_HTTP: "add it to insecure_registries in the answers",
    errors.CA_BUNDLE: "ca_bundle in the answers",
    errors.MIRROR: "registry_mirrors",
}


@contextlib.contextmanager
def as_llmb_errors() -> Iterator[None]:
    """Raise errors of sqshpull within as llmb's."""
    try:
        yield
    except errors.PullError as error:
        raise llmb_error(error) from error


def llmb_error(error: errors.PullError) -> LlmbError:
    """Return an error of sqshpull as llmb's, with the installer's names of settings."""
    if isinstance(error, errors.PullStoppedError):
        return shell.StoppedError(error.message)
    kind = UsageError if isinstance(error, errors.PullInputError) else LlmbError
    message, hint = error.message, error.hint
    for name, replacement in _SETTINGS.items():
        message = message.replace(name, replacement)
        hint = hint and hint.replace(name, replacement)
    return kind(message, hint=hint, code=error.code, key=error.key, value=error.value)


def make_user(environ: Mapping[str, str], home: Path) -> PullUser:
    """Return the user whose credentials are searched, in llmb's file of secrets too."""

    def find(names: Sequence[str]) -> Mapping[str, str]:
        return secrets.find(names, {})

    store = SecretStore(name=secrets.SECRETS_FILE, find=find)
    return PullUser(environ=environ, home=home, store=store)


def build_image(
    reference: str,
    architecture: str,
    target: Path,
    settings: PullSettings,
    context: BuildContext,
    *,
    update: bool = False,
) -> ImageRecord:
    """Build the image of ``reference`` as ``target``, and return its record. Raises LlmbError.

    A sound image is reused, unless ``update`` is set and the registry has another one by now.
    """
    # What builds and fetches images is imported where it is used: most calls find all of them done.
    from sqshpull import build

    target = files.expand(target).absolute()
    folder = target.parent
    with as_llmb_errors():
        # sqshpull's own lock does not reach other hosts on every shared file system. llmb's does.
        with os_errors(
            f"{folder} cannot be created",
            hint=f"choose {_SETTINGS[errors.OTHER_FILE]}",
            code="folder-unwritable",
            key=str(folder),
        ):
            folder.mkdir(parents=True, exist_ok=True)
        with _locked(target, context.progress):
            image = build.pull(
                reference,
                target,
                architecture=architecture,
                settings=settings,
                user=make_user(context.environ, context.home),
                progress=context.progress,
                log=context.log,
                update=update,
            )
            image = with_libraries(target, image)
            share_record(target)
            return image


def with_libraries(target: Path, image: ImageRecord) -> ImageRecord:
    """Record the frameworks in the image ``target``, unless its record has them already."""
    libraries = {} if image.contents else libraries_in(target)
    if not libraries:
        return image
    image = replace(image, contents=libraries)
    with contextlib.suppress(OSError):  # another user's
        record.write_record(target, image)
    return image


def share_record(target: Path) -> None:
    """Give the record of an image in an install directory the directory's mode."""
    if (shared := permissions.mode_of_install(target.parent)) is not None:
        with contextlib.suppress(OSError):  # another user's, or a file system that has no modes
            record.record_path(target).chmod(0o600 | shared & 0o066)


@contextlib.contextmanager
def _locked(target: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of ``target``; report which process holds it before."""
    is_reported = False

    def on_wait(owner: process.ProcessId) -> None:
        nonlocal is_reported
        if not is_reported:
            progress.say(
                f"waiting for process {owner.pid} on {owner.host}, which builds {target.name}"
            )
        is_reported = True

    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(
                    locks.hold(target.parent, f".{target.name}", wait=_LOCK_WAIT, on_wait=on_wait)
                )
                break
            except locks.LockHeldError:
                progress.advance(0)
        yield


def check_file(target: Path, *, deep: bool) -> Fault | None:
    """Return what is wrong with an image, None if it is sound. Raises LlmbError."""
    with as_llmb_errors():
        fault = record.check(target, deep=deep)
        return None if fault is None else as_fault(llmb_error(fault))


def builder_faults() -> dict[str, LlmbError | None]:
    """Return why each of the programs that build images cannot be used here, None if it can."""
    from sqshpull import enroot, squashfs

    settings = PullSettings()
    faults = {
        "mksquashfs": squashfs.squash_fault(settings),
        "enroot": enroot.enroot_fault(settings),
    }
    return {name: None if fault is None else llmb_error(fault) for name, fault in faults.items()}


def check_image(
    reference: str,
    architecture: str,
    *,
    environ: Mapping[str, str],
    home: Path,
    settings: RegistrySettings | None = None,
) -> ImageManifest:
    """Look ``reference`` up in its registry. Raises LlmbError."""
    from sqshpull import registry

    with as_llmb_errors():
        user = make_user(environ, home)
        return registry.look_up(reference, architecture, user=user, settings=settings)


def check_images(
    images: Sequence[tuple[str, str]],
    *,
    environ: Mapping[str, str],
    home: Path,
    settings: RegistrySettings | None = None,
    sleep: Sleep = time.sleep,
    say: Callable[[str], None] = lambda text: None,
) -> list[ImageManifest]:
    """Look up every (reference, architecture) at once; in their order.

    ``say`` gets a line for each long pause. Raises PreflightError with all faults.
    """
    from sqshpull import registry

    with as_llmb_errors():
        results = registry.look_up_all(
            images, user=make_user(environ, home), settings=settings, sleep=sleep, say=say
        )
    failures = [
        (image[0], llmb_error(result))
        for image in dict.fromkeys(images)
        if isinstance(result := results[image], errors.PullError)
    ]
    if failures:
        raise PreflightError(_merged_faults(failures))
    manifests = (results[image] for image in images)
    return [manifest for manifest in manifests if isinstance(manifest, ImageManifest)]


def _merged_faults(failures: Sequence[tuple[str, LlmbError]]) -> list[Fault]:
    """Return a fault for each different error. One that several images share names them."""
    users: dict[tuple[str, str | None], list[str]] = {}
    distinct: dict[tuple[str, str | None], LlmbError] = {}
    for reference, error in failures:
        text = error.message, error.hint
        distinct.setdefault(text, error)
        users.setdefault(text, []).extend([reference] if error.code in _SHARED_FAULTS else [])
    faults = []
    for text, error in distinct.items():
        images = f" (needed for {', '.join(dict.fromkeys(users[text]))})" if users[text] else ""
        faults.append(replace(as_fault(error, "image"), message=f"{error.message}{images}"))
    return faults
