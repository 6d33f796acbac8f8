# SPDX-License-Identifier: Apache-2.0
"""Checks images in their registries before anything is fetched: all that stands in the way, at once."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmb.errors import Fault, LlmbError, PreflightError
from llmb.system import parallel
from llmb_installer.registry.client import Registry
from llmb_installer.registry.faults import ImageFaultError
from llmb_installer.registry.manifests import Manifest
from llmb_installer.registry.reference import Reference
from llmb_installer.registry.retry import Sleep
from llmb_installer.registry.settings import RegistrySettings

_WORKERS = 8

# Measured on images of frameworks: zstd's squashfs is about as large as the gzip layers, and at times a little larger.
_BUILT = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """An image that can be had; ``disk_bytes``: what building it takes at most, its layers and the file together."""

    reference: Reference
    manifest: Manifest

    @property
    def compressed_bytes(self) -> int:
        """What is to be fetched."""
        return self.manifest.compressed_bytes

    @property
    def image_bytes(self) -> int:
        """About what the finished file takes."""
        return round(self.compressed_bytes * _BUILT)

    @property
    def disk_bytes(self) -> int:
        """What building it takes at most, its layers and the file together."""
        return self.compressed_bytes + self.image_bytes


def check_image(
    reference: str,
    architecture: str,
    *,
    environ: Mapping[str, str],
    home: Path,
    settings: RegistrySettings | None = None,
    sleep: Sleep = time.sleep,
) -> Checked:
    """Look ``reference`` up for ``architecture``. Raises ImageFaultError, UsageError for what is no reference."""
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
    """Look up every (reference, architecture) at once, in their order. Raises PreflightError with all faults.

    ``say`` is told of long pauses.
    """
    outcomes: dict[tuple[str, str], Checked | LlmbError] = {}
    with contextlib.ExitStack() as stack:
        references = {pair: _parse(pair[0]) for pair in wanted}
        registries = {
            name: stack.enter_context(
                Registry(name, environ=environ, home=home, settings=settings, sleep=sleep, say=say)
            )
            for name in {found.registry: None for found in references.values() if isinstance(found, Reference)}
        }

        def look(pair: tuple[str, str]) -> None:
            reference = references[pair]
            outcomes[pair] = (
                reference
                if isinstance(reference, LlmbError)
                else _look(registries[reference.registry], reference, pair[1])
            )

        parallel.run_bounded(iter(references), look, lambda _: True, workers=_WORKERS, stop=lambda: False)
    if faults := _faults([(pair[0], found) for pair in references if isinstance(found := outcomes[pair], LlmbError)]):
        raise PreflightError(faults)
    return [found for pair in wanted if isinstance(found := outcomes[pair], Checked)]


def _parse(reference: str) -> Reference | LlmbError:
    try:
        return Reference.parse(reference)
    except LlmbError as error:
        return error


def _look(registry: Registry, reference: Reference, architecture: str) -> Checked | LlmbError:
    try:
        return Checked(reference=reference, manifest=registry.manifest(reference, architecture))
    except LlmbError as error:
        return error


def _faults(failed: Sequence[tuple[str, LlmbError]]) -> list[Fault]:
    """One fault for each thing that is wrong, which may keep several images from us."""
    users: dict[tuple[str, str | None], list[str]] = {}
    for reference, error in failed:
        common = isinstance(error, ImageFaultError) and error.kind in ("unreachable", "refused", "no_credentials")
        users.setdefault((error.message, error.hint), []).extend([reference] if common else [])
    faults = []
    for (message, hint), references in users.items():
        for_whom = f" (needed for {', '.join(dict.fromkeys(references))})" if references else ""
        faults.append(Fault(message=f"{message}{for_whom}", place="image", hint=hint))
    return faults
