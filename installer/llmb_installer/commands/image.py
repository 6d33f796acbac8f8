# SPDX-License-Identifier: Apache-2.0
"""llmb-install image: one container image as a squashfs file, by itself."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llmb.system import console
from llmb_installer.commands.options import FILE, FOLDER

if TYPE_CHECKING:
    from llmb_installer.images import BuildSettings, ImageFacts


@click.command("image")
@click.argument("reference", metavar="REF")
@click.option("-o", "--output", type=FILE, help="The file; else by its name in the image folder, or in this one.")
@click.option("--arch", help="The nodes' architecture, x86_64 or aarch64; else the install directory's.")
@click.option("--install", type=FOLDER, help="The install directory whose folder and architecture count.")
@click.option("--check", is_flag=True, help="Build nothing: read all of the image there, and compare it.")
@click.option("--update", is_flag=True, help="Build it again where the registry has another one by now.")
@click.option(
    "--builder",
    type=click.Choice(["auto", "stream", "enroot"]),
    default="auto",
    help="stream: mksquashfs 4.5 or newer; enroot: enroot import; auto: the first that is here.",
)
@click.option("--via", type=click.Choice(["here", "srun"]), default="here", help="Where enroot runs.")
@click.option("--srun-arg", "srun_args", multiple=True, metavar="ARG", help="An option for srun, as --partition=cpu.")
@click.option(
    "--compression",
    type=click.Choice(["zstd", "lz4", "gzip", "lzo", "xz"]),
    default="zstd",
    show_default=True,
    help="How the image is compressed.",
)
@click.option("--level", type=int, help="The compression's level; zstd's is 3 where none is given.")
@click.option("--processors", type=click.IntRange(1), help="How many processors to use; else all.")
@click.option("--cache", type=FOLDER, help="The folder for layers on their way; else .layers beside the file.")
@click.option("--keep-layers", is_flag=True, help="Leave the layers there.")
@click.option("--keep-devices", "devices", is_flag=True, help="Keep device nodes: only root can unpack such an image.")
@click.option("--insecure", "insecure", multiple=True, metavar="HOST", help="A registry that may be asked without TLS.")
@click.option("--mirror", "mirrors", multiple=True, metavar="HOST=HOST/PATH", help="A registry to ask in its place.")
@click.option("--ca-bundle", type=FILE, help="Certificates to trust besides the system's.")
def command(
    reference: str,
    output: Path | None,
    arch: str | None,
    install: Path | None,
    check: bool,
    update: bool,
    insecure: tuple[str, ...],
    mirrors: tuple[str, ...],
    ca_bundle: Path | None,
    **given: Any,
) -> None:
    """Build the container image REF as a squashfs file for enroot and pyxis.

    An image that is there and whole is used as it is.

    \b
    llmb-install image nvcr.io/nvidia/nemo:25.04.01 -o nemo.sqsh --arch aarch64
    llmb-install image nvcr.io/nvidia/nemo:25.04.01 -o nemo.sqsh --check
    """
    from llmb_installer import images
    from llmb_installer.registry import RegistrySettings

    _require(arch, given)
    target, architecture = _place(reference, output, arch, install)
    registry = RegistrySettings(
        insecure_registries=insecure, registry_mirrors=dict(map(_mirror, mirrors)), ca_bundle=ca_bundle
    )
    settings = images.BuildSettings(registry=registry, **given)
    if check:
        _check(reference, architecture, target, settings)
    else:
        _build(reference, architecture, target, settings, update)


def _require(arch: str | None, given: Mapping[str, Any]) -> None:
    """Raises UsageError for what no machine or compression has."""
    from llmb.errors import UsageError
    from llmb_installer.answers import ARCHITECTURES
    from llmb_installer.answers.words import level_fault
    from llmb_installer.registry.manifests import architecture_name

    if arch is not None and architecture_name(arch) not in map(architecture_name, ARCHITECTURES):
        raise UsageError(f"--arch {arch} is not known", hint=f"one of {', '.join(ARCHITECTURES)}")
    level = given["level"]
    if level is not None and (fault := level_fault(given["compression"], level)) is not None:
        raise UsageError(f"--level: {fault}", hint="leave it out for the usual one")


def _mirror(text: str) -> tuple[str, str]:
    """The registry of ``HOST=HOST/PATH`` and its mirror. Raises UsageError."""
    from llmb.errors import UsageError

    registry, _, mirror = text.partition("=")
    if not registry or not mirror:
        raise UsageError(f"--mirror {text} names no mirror", hint="as in --mirror docker.io=mirror.example.org/hub")
    return registry, mirror


def _place(reference: str, output: Path | None, arch: str | None, install: Path | None) -> tuple[Path, str]:
    """The file and the architecture: as given, else an install directory's, else here. Raises UsageError."""
    import os
    import platform

    from llmb.config import find_install, load_config
    from llmb.config.images import file_name, image_path
    from llmb.errors import UsageError

    try:
        config, _ = load_config(find_install(install, os.environ, console.current_folder()), os.environ)
    except UsageError:
        if install is not None:
            raise
        if arch is None:
            console.echo(f"note: --arch is not given: this machine's, {platform.machine()}", err=True)
        return output or Path(file_name(reference)), arch or platform.machine()
    return output or image_path(reference, config), arch or config.install.node_architecture


def _build(reference: str, architecture: str, target: Path, settings: BuildSettings, update: bool) -> None:
    import os

    from llmb_installer import images
    from llmb_installer.images.progress import shown
    from llmb_installer.registry.manifests import machine_name
    from llmb_installer.registry.room import size

    log, before = target.with_name(f".{target.name}.log"), _facts(target)
    with shown() as progress:
        facts = images.build(
            reference,
            architecture,
            target,
            settings,
            environ=os.environ,
            home=Path.home(),
            progress=progress,
            log=log,
            update=update,
        )
    log.unlink(missing_ok=True)
    there = "; it was there already" if facts == before else ""
    told = "adopted, of unknown origin" if facts.adopted else f"{facts.digest}, built {facts.built_at}"
    console.echo(f"{target}: {size(facts.size)}, for {machine_name(facts.architecture)}, {told}{there}")


def _facts(target: Path) -> ImageFacts | None:
    """What is recorded of the image at ``target`` before anything is done."""
    from llmb.errors import LlmbError
    from llmb_installer import images

    try:
        return images.read_facts(target)
    except LlmbError:  # a damaged record is written anew
        return None


def _check(reference: str, architecture: str, target: Path, settings: BuildSettings) -> None:
    """Say what is wrong with the image there, and whether the registry has another one. Raises LlmbError."""
    import os

    from llmb.errors import LlmbError
    from llmb_installer import images
    from llmb_installer.registry import check_image
    from llmb_installer.registry.manifests import machine_name

    again = f"llmb-install image {shlex.quote(reference)} -o {shlex.quote(str(target))}"
    if faults := images.check(target, deep=True):
        raise LlmbError(f"{target}: {'; '.join(faults)}", hint=f"{again} builds it, or takes it over where it can")
    facts = images.read_facts(target)
    assert facts is not None, "a missing record is a fault"
    console.echo(f"{target} is whole: {facts.reference} for {machine_name(facts.architecture)}, sha256 {facts.sha256}")
    found = check_image(reference, architecture, environ=os.environ, home=Path.home(), settings=settings.registry)
    if facts.reference != str(found.reference) or facts.architecture not in (None, found.manifest.architecture):
        message = f"it is {facts.reference} for {machine_name(facts.architecture)}, not {found.reference}"
        wanted = machine_name(found.manifest.architecture)
        raise LlmbError(f"{message} for {wanted}", hint="name another file, or remove this one")
    if images.changed(facts, found.manifest):
        raise LlmbError(f"the registry has another image as {reference} by now", hint=f"{again} --update")
    console.echo(f"the registry has {'an image' if facts.digest is None else 'the same one'} as {reference}")
