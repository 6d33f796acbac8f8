# SPDX-License-Identifier: Apache-2.0
"""Checks images in their registries before anything is fetched: all faults at once."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from llmb.errors import Fault, LlmbError, PreflightError, as_fault
from llmb.system import parallel
from llmb_installer.registry.client import Registry, Sleep
from llmb_installer.registry.manifests import Manifest
from llmb_installer.registry.reference import Reference, RegistrySettings

_WORKERS = 8
_COMMON = ("host-unreachable", "credentials-refused", "credentials-missing")  # faults that several images may share


def check_image(
    reference: str,
    architecture: str,
    *,
    environ: Mapping[str, str],
    home: Path,
    settings: RegistrySettings | None = None,
    sleep: Sleep = time.sleep,
) -> Manifest:
    """Look ``reference`` up for ``architecture``. Raises LlmbError, UsageError for an invalid reference."""
    parsed = Reference.parse(reference)
    with Registry(parsed.registry, environ=environ, home=home, settings=settings, sleep=sleep) as registry:
        return registry.manifest(parsed, architecture)


def check_images(
    wanted: Sequence[tuple[str, str]],
    *,
    environ: Mapping[str, str],
    home: Path,
    settings: RegistrySettings | None = None,
    sleep: Sleep = time.sleep,
    say: Callable[[str], None] = lambda text: None,
) -> list[Manifest]:
    """Look up every (reference, architecture) at once; in their order. Raises PreflightError with all faults.

    ``say`` is informed of long pauses.
    """
    references: dict[tuple[str, str], Reference] = {}
    found: dict[tuple[str, str], Manifest] = {}
    failed: dict[tuple[str, str], LlmbError] = {}
    for pair in wanted:
        try:
            references[pair] = Reference.parse(pair[0])
        except LlmbError as error:
            failed[pair] = error
    with contextlib.ExitStack() as stack:
        registries = {
            name: stack.enter_context(
                Registry(name, environ=environ, home=home, settings=settings, sleep=sleep, say=say)
            )
            for name in {reference.registry: None for reference in references.values()}
        }

        def look(pair: tuple[str, str]) -> None:
            reference = references[pair]
            try:
                found[pair] = registries[reference.registry].manifest(reference, pair[1])
            except LlmbError as error:
                failed[pair] = error

        parallel.run_bounded(references, look, workers=_WORKERS)
    if failed:
        raise PreflightError(_faults([(pair[0], failed[pair]) for pair in dict.fromkeys(wanted) if pair in failed]))
    return [found[pair] for pair in wanted]


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
