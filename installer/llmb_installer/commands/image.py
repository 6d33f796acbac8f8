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

from llmb.core import console
from llmb.core.units import bytes_in_words
from llmb.errors import LlmbError, UsageError
from llmb.plan import images as image_names
from llmb.plan.config_layers import load_config
from llmb.plugins.foreign import find_own_install
from llmb_installer.answers.schema import ARCHITECTURES
from llmb_installer.cluster_types import all_plugins, all_types
from llmb_installer.execution.runner import Runner
from llmb_installer.images.adapter import as_llmb_errors, build_image, check_file, check_image
from llmb_installer.step import BuildContext, Lines, Progress
from sqshpull.manifests import architecture_name, machine_name
from sqshpull.record import read_record
from sqshpull.settings import PullSettings, level_fault

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
    **build_options: Any,
) -> None:
    """Build the container image ``reference``, or ``check`` it.

    ``build_options`` are fields of PullSettings.
    """
    _require(arch, build_options)
    target, architecture = _place(reference, output, arch, install)
    settings = PullSettings(
        insecure_registries=insecure, registry_mirrors=dict(map(_mirror, mirrors)), **build_options
    )
    if check:
        _check(reference, architecture, target, settings)
    else:
        _build(reference, architecture, target, settings, update)


def _require(arch: str | None, build_options: Mapping[str, Any]) -> None:
    """Raise UsageError for an unknown architecture or level."""
    if arch is not None and architecture_name(arch) not in map(architecture_name, ARCHITECTURES):
        raise UsageError(
            f"--arch {arch} is unknown",
            hint=f"one of {', '.join(ARCHITECTURES)}",
            code="architecture-unknown",
            key="--arch",
            value=arch,
        )
    level = build_options["level"]
    if (
        level is not None
        and (fault := level_fault(build_options["compression"], level)) is not None
    ):
        hint = "omit it to use the default"
        raise UsageError(
            f"--level: {fault}", hint=hint, code="level-invalid", key="--level", value=level
        )


def _mirror(text: str) -> tuple[str, str]:
    """The registry of ``HOST=HOST/PATH`` and its mirror. Raises UsageError."""
    registry, _, mirror = text.partition("=")
    if not registry or not mirror:
        raise UsageError(
            f"--mirror {text} has no mirror",
            hint="such as --mirror docker.io=mirror.example.org/hub",
            code="mirror-invalid",
            key="--mirror",
            value=text,
        )
    return registry, mirror


def _place(
    reference: str, output: Path | None, arch: str | None, install: Path | None
) -> tuple[Path, str]:
    """File and architecture: the given ones, else an install directory's, else this machine's.

    Raises UsageError.
    """
    try:
        config, _ = load_config(
            find_own_install(all_plugins, install, os.environ), os.environ, cluster_types=all_types
        )
    except UsageError:
        if install is not None:
            raise
        if arch is None:
            console.echo(
                f"note: no --arch: using this machine's architecture, {platform.machine()}",
                err=True,
            )
        return output or Path(image_names.file_name(reference)), arch or platform.machine()
    return (
        output or image_names.image_path(reference, config),
        arch or config.install.node_architecture,
    )


def _build(
    reference: str, architecture: str, target: Path, settings: PullSettings, update: bool
) -> None:
    log, before = target.with_name(f".{target.name}.log"), None
    with contextlib.suppress(LlmbError), as_llmb_errors():  # a damaged record will be rewritten
        before = read_record(target)
    with _progress() as progress:
        context = BuildContext(
            install=target.parent,
            environ=os.environ,
            home=Path.home(),
            log=log,
            progress=progress,
            runner=Runner(),
        )
        facts = build_image(reference, architecture, target, settings, context, update=update)
    log.unlink(missing_ok=True)
    existing = "; it existed already" if facts == before else ""
    origin = (
        "adopted, of unknown origin" if facts.adopted else f"{facts.digest}, built {facts.built_at}"
    )
    console.echo(
        f"{target}: {bytes_in_words(facts.size)}, for {machine_name(facts.architecture)},"
        f" {origin}{existing}"
    )


def _check(reference: str, architecture: str, target: Path, settings: PullSettings) -> None:
    """Report what is wrong with the image, and whether the registry has a newer one.

    Raises LlmbError.
    """
    again = (
        f"llmb-install image {shlex.quote(reference)} -o {shlex.quote(str(target))} --arch"
        f" {architecture}"
    )
    if (fault := check_file(target, deep=True)) is not None:
        raise LlmbError(
            f"{target}: {fault.message}",
            hint=f"build it, or adopt it where possible: {again}",
            code=fault.code,
            key=str(target),
            value=fault.value,
        )
    with as_llmb_errors():
        facts = read_record(target)
    assert facts is not None, "a missing record is a fault"
    console.echo(
        f"{target} is complete: {facts.reference} for {machine_name(facts.architecture)}, sha256"
        f" {facts.sha256}"
    )
    available = check_image(
        reference, architecture, environ=os.environ, home=Path.home(), settings=settings
    )
    if facts.reference != str(available.reference) or facts.architecture not in (
        None,
        available.architecture,
    ):
        message = (
            f"it is {facts.reference} for {machine_name(facts.architecture)}, not"
            f" {available.reference}"
        )
        wanted_machine = machine_name(available.architecture)
        raise LlmbError(
            f"{message} for {wanted_machine}", hint="choose another file, or remove this one"
        )
    if facts.digest not in (None, available.digest):
        hint = f"rebuild it: {again} --update"
        raise LlmbError(
            f"the registry has a newer image for {reference}", hint=hint, code="image-changed"
        )
    console.echo(
        f"the registry has {'an image' if facts.digest is None else 'the same image'} for"
        f" {reference}"
    )


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
    with rich.progress.Progress(
        *columns, console=rich.console.Console(stderr=True), transient=True
    ) as bar:
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
