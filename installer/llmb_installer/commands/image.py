# SPDX-License-Identifier: Apache-2.0
"""llmb-install image: builds a single container image as a squashfs file."""

import contextlib
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmb.config import find_install, images as image_names, load_config
from llmb.errors import LlmbError, UsageError
from llmb.system import console
from llmb.text.units import bytes_in_words
from llmb_installer.answers.schema import ARCHITECTURES, level_fault
from llmb_installer.cluster_types import all_types
from llmb_installer.execution.runner import Runner
from llmb_installer.images.build import build
from llmb_installer.images.facts import check as check_file, read_facts
from llmb_installer.images.squash import BuildSettings
from llmb_installer.registry.availability import check_image
from llmb_installer.registry.manifests import architecture_name, machine_name
from llmb_installer.step import Context, Lines, Progress

if TYPE_CHECKING:
    import rich.progress


def run(
    reference: str,
    output: Path | None,
    arch: str | None,
    install: Path | None,
    check: bool,
    update: bool,
    insecure: tuple[str, ...],
    mirrors: tuple[str, ...],
    **given: Any,
) -> None:
    """Build the container image ``reference``, or ``check`` it; ``given`` are fields of BuildSettings."""
    _require(arch, given)
    target, architecture = _place(reference, output, arch, install)
    settings = BuildSettings(insecure_registries=insecure, registry_mirrors=dict(map(_mirror, mirrors)), **given)
    if check:
        _check(reference, architecture, target, settings)
    else:
        _build(reference, architecture, target, settings, update)


def _require(arch: str | None, given: Mapping[str, Any]) -> None:
    """Raise UsageError for an unknown architecture or level."""
    if arch is not None and architecture_name(arch) not in map(architecture_name, ARCHITECTURES):
        hint = f"one of {', '.join(ARCHITECTURES)}"
        raise UsageError(f"--arch {arch} is unknown", hint=hint, code="architecture-unknown", key="--arch", value=arch)
    level = given["level"]
    if level is not None and (fault := level_fault(given["compression"], level)) is not None:
        hint = "omit it to use the default"
        raise UsageError(f"--level: {fault}", hint=hint, code="level-invalid", key="--level", value=level)


def _mirror(text: str) -> tuple[str, str]:
    """The registry of ``HOST=HOST/PATH`` and its mirror. Raises UsageError."""
    registry, _, mirror = text.partition("=")
    if not registry or not mirror:
        hint = "such as --mirror docker.io=mirror.example.org/hub"
        raise UsageError(f"--mirror {text} has no mirror", hint=hint, code="mirror-invalid", key="--mirror", value=text)
    return registry, mirror


def _place(reference: str, output: Path | None, arch: str | None, install: Path | None) -> tuple[Path, str]:
    """File and architecture: the given ones, else an install directory's, else this machine's. Raises UsageError."""
    try:
        config, _ = load_config(find_install(install, os.environ), os.environ, cluster_types=all_types)
    except UsageError:
        if install is not None:
            raise
        if arch is None:
            console.echo(f"note: no --arch: using this machine's architecture, {platform.machine()}", err=True)
        return output or Path(image_names.file_name(reference)), arch or platform.machine()
    return output or image_names.image_path(reference, config), arch or config.install.node_architecture


def _build(reference: str, architecture: str, target: Path, settings: BuildSettings, update: bool) -> None:
    log, before = target.with_name(f".{target.name}.log"), None
    with contextlib.suppress(LlmbError):  # a damaged record will be rewritten
        before = read_facts(target)
    with _progress() as progress:
        context = Context(
            install=target.parent, environ=os.environ, home=Path.home(), log=log, progress=progress, runner=Runner()
        )
        facts = build(reference, architecture, target, settings, context, update=update)
    log.unlink(missing_ok=True)
    existing = "; it existed already" if facts == before else ""
    origin = "adopted, of unknown origin" if facts.adopted else f"{facts.digest}, built {facts.built_at}"
    console.echo(f"{target}: {bytes_in_words(facts.size)}, for {machine_name(facts.architecture)}, {origin}{existing}")


def _check(reference: str, architecture: str, target: Path, settings: BuildSettings) -> None:
    """Report what is wrong with the image, and whether the registry has a newer one. Raises LlmbError."""
    again = f"llmb-install image {shlex.quote(reference)} -o {shlex.quote(str(target))} --arch {architecture}"
    if (fault := check_file(target, deep=True)) is not None:
        hint = f"build it, or adopt it where possible: {again}"
        raise LlmbError(f"{target}: {fault.message}", hint=hint, code=fault.code, key=str(target), value=fault.value)
    facts = read_facts(target)
    assert facts is not None, "a missing record is a fault"
    console.echo(
        f"{target} is complete: {facts.reference} for {machine_name(facts.architecture)}, sha256 {facts.sha256}"
    )
    found = check_image(reference, architecture, environ=os.environ, home=Path.home(), settings=settings)
    if facts.reference != str(found.reference) or facts.architecture not in (None, found.architecture):
        message = f"it is {facts.reference} for {machine_name(facts.architecture)}, not {found.reference}"
        wanted = machine_name(found.architecture)
        raise LlmbError(f"{message} for {wanted}", hint="choose another file, or remove this one")
    if facts.digest not in (None, found.digest):
        hint = f"rebuild it: {again} --update"
        raise LlmbError(f"the registry has a newer image for {reference}", hint=hint, code="image-changed")
    console.echo(f"the registry has {'an image' if facts.digest is None else 'the same image'} for {reference}")


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield Lines()
        return

    import rich.console
    import rich.progress

    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.DownloadColumn(),
        rich.progress.TransferSpeedColumn(),
        rich.progress.TimeElapsedColumn(),
    )
    with rich.progress.Progress(*columns, console=rich.console.Console(stderr=True), transient=True) as bar:
        yield _Bar(bar)


class _Bar:
    """Progress as a bar, below the lines."""

    def __init__(self, bar: "rich.progress.Progress") -> None:
        self._bar = bar
        self._task = bar.add_task("image", total=None)

    def total(self, bytes: int) -> None:
        self._bar.update(self._task, total=bytes)

    def advance(self, bytes: int) -> None:
        self._bar.update(self._task, advance=bytes)

    def say(self, text: str) -> None:
        self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
