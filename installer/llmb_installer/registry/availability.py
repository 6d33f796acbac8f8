# SPDX-License-Identifier: Apache-2.0
"""Checks images in their registries, and the space on the disks, before anything is fetched: all faults at once."""

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from llmb.errors import Fault, LlmbError, PreflightError, as_fault
from llmb.system import files, parallel
from llmb.text.units import bytes_in_words
from llmb_installer.registry.client import Registry, Sleep
from llmb_installer.registry.manifests import Manifest
from llmb_installer.registry.reference import Reference, RegistrySettings

T = TypeVar("T")

_WORKERS = 8
_BUILT = 1.1  # size of a zstd squashfs by that of the gzip layers, at most; measured on images of frameworks
_COMMON = ("host-unreachable", "credentials-refused", "credentials-missing")  # faults that several images may share


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """An image that can be fetched."""

    reference: Reference
    manifest: Manifest

    @property
    def compressed_bytes(self) -> int:
        """The bytes to fetch."""
        return self.manifest.compressed_bytes

    @property
    def image_bytes(self) -> int:
        """The approximate size of the built file."""
        return round(self.compressed_bytes * _BUILT)


def check_image(
    reference: str,
    architecture: str,
    *,
    environ: Mapping[str, str],
    home: Path,
    settings: RegistrySettings | None = None,
    sleep: Sleep = time.sleep,
) -> Checked:
    """Look ``reference`` up for ``architecture``. Raises LlmbError, UsageError for an invalid reference."""
    parsed = Reference.parse(reference)
    with Registry(parsed.registry, environ=environ, home=home, settings=settings, sleep=sleep) as registry:
        return Checked(reference=parsed, manifest=registry.manifest(parsed, architecture))


def check_images(
    wanted: Sequence[tuple[str, str]],
    *,
    environ: Mapping[str, str],
    home: Path,
    settings: RegistrySettings | None = None,
    sleep: Sleep = time.sleep,
    say: Callable[[str], None] = lambda text: None,
) -> list[Checked]:
    """Look up every (reference, architecture) at once; in their order. Raises PreflightError with all faults.

    ``say`` is informed of long pauses.
    """
    outcomes: dict[tuple[str, str], Checked | LlmbError] = {}
    with contextlib.ExitStack() as stack:
        references = {pair: _attempt(Reference.parse, pair[0]) for pair in wanted}
        registries = {
            name: stack.enter_context(
                Registry(name, environ=environ, home=home, settings=settings, sleep=sleep, say=say)
            )
            for name in {found.registry: None for found in references.values() if isinstance(found, Reference)}
        }

        def look(pair: tuple[str, str]) -> None:
            reference = references[pair]
            if isinstance(reference, LlmbError):
                outcomes[pair] = reference
                return
            found = _attempt(registries[reference.registry].manifest, reference, pair[1])
            outcomes[pair] = found if isinstance(found, LlmbError) else Checked(reference=reference, manifest=found)

        parallel.run_bounded(references, look, workers=_WORKERS)
    if faults := _faults([(pair[0], found) for pair in references if isinstance(found := outcomes[pair], LlmbError)]):
        raise PreflightError(faults)
    return [found for pair in wanted if isinstance(found := outcomes[pair], Checked)]


def _attempt(call: Callable[..., T], *arguments: Any) -> T | LlmbError:
    try:
        return call(*arguments)
    except LlmbError as error:
        return error


def _faults(failed: Sequence[tuple[str, LlmbError]]) -> list[Fault]:
    """A fault for each different error; one that several images share names them."""
    users: dict[tuple[str, str | None], list[str]] = {}
    errors: dict[tuple[str, str | None], LlmbError] = {}
    for reference, error in failed:
        same = error.message, error.hint
        errors.setdefault(same, error)
        users.setdefault(same, []).extend([reference] if error.code in _COMMON else [])
    faults = []
    for same, error in errors.items():
        used_by = f" (needed for {', '.join(dict.fromkeys(users[same]))})" if users[same] else ""
        faults.append(replace(as_fault(error, "image"), message=f"{error.message}{used_by}"))
    return faults


def disk_faults(needed: Mapping[Path, int]) -> list[Fault]:
    """A fault for each disk with less free space than the ``needed`` bytes of all its folders together.

    A folder that does not exist yet is on the disk of the nearest one above it.
    """
    folders: dict[int, list[Path]] = {}
    for folder in needed:
        folders.setdefault(files.nearest_folder(folder).stat().st_dev, []).append(folder)
    faults = []
    for group in folders.values():
        total, free = sum(needed[folder] for folder in group), shutil.disk_usage(files.nearest_folder(group[0])).free
        if total > free:
            message = f"{', '.join(map(str, group))}: needs {bytes_in_words(total)}, {bytes_in_words(free)} are free"
            hint = "free space there, or choose another folder"
            faults.append(Fault(place="disk", message=message, hint=hint, code="disk-full", value=total))
    return faults
