# SPDX-License-Identifier: Apache-2.0
"""Builds an image by enroot import, here or through srun on a node, and does not believe its exit code."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from llmb.config import images as image_files
from llmb.errors import LlmbError
from llmb.system import shell
from llmb_installer.images.architecture import architecture_of
from llmb_installer.images.settings import BuildSettings
from llmb_installer.registry.endpoint import mirrored
from llmb_installer.registry.manifests import machine_name
from llmb_installer.registry.reference import DOCKER_HUB, Reference

_TAIL = 8  # lines of its output that an error shows


def enroot_fault(settings: BuildSettings) -> LlmbError | None:
    """Why enroot cannot be used; None when it can. Whether a node has it, only the node can say."""
    program = "srun" if settings.via == "srun" else "enroot"
    if shutil.which(program) is None:
        hint = "install it here, or choose the builder 'stream', which needs mksquashfs 4.5 or newer"
        return LlmbError(f"there is no {program} here", hint=hint)
    return None


def uri(reference: Reference) -> str:
    """``docker://REGISTRY#repo:tag``, which every version of enroot reads; by digest, from 4.0."""
    registry = "" if reference.registry == DOCKER_HUB else f"{reference.registry}#"
    version = f"@{reference.digest}" if reference.digest else f":{reference.tag}"
    return f"docker://{registry}{reference.repository}{version}"


def import_argv(reference: Reference, architecture: str, part: Path, settings: BuildSettings) -> list[str]:
    """The command; without ``-a`` enroot would take the architecture of the host that it runs on."""
    image = uri(mirrored(reference, settings.registry))
    argv = ["enroot", "import", "-a", machine_name(architecture), "-o", str(part), image]
    if settings.via == "srun":
        return ["srun", "--nodes=1", "--ntasks=1", "--job-name=llmb-image", *settings.srun_args, *argv]
    return argv


def import_environment(
    environ: Mapping[str, str], folder: Path | None, settings: BuildSettings, plain: bool
) -> dict[str, str]:
    """Its environment: our compression in place of the slow lzo; ``plain`` where the registry is one without TLS.

    Its cache and temporary files go below ``folder``; None leaves them where the site's enroot.conf has them, as not
    every file system can hold the temporary ones.
    """
    own = {"ENROOT_SQUASH_OPTIONS": " ".join(settings.options)}
    if folder is not None:
        own |= {"ENROOT_CACHE_PATH": str(folder / "cache"), "ENROOT_TEMP_PATH": str(folder / "temp")}
    if settings.processors is not None:
        own["ENROOT_MAX_PROCESSORS"] = str(settings.processors)
    return {**environ, **own, **({"ENROOT_ALLOW_HTTP": "yes"} if plain else {})}


def build_enroot(
    reference: Reference,
    architecture: str,
    part: Path,
    folder: Path | None,
    settings: BuildSettings,
    environ: Mapping[str, str],
    log: Path,
    *,
    plain: bool,
) -> None:
    """Have enroot write the image to ``part``, and check that it did. Raises LlmbError."""
    if reference.digest and settings.via == "here":
        _need_version_for_digest()
    if folder is not None:
        for name in ("cache", "temp"):
            (folder / name).mkdir(parents=True, exist_ok=True)
    argv = import_argv(reference, architecture, part, settings)
    start = log.stat().st_size if log.exists() else 0
    code = shell.run_logged(argv, log, env=import_environment(environ, folder, settings, plain))
    told = _tail(log.read_bytes()[start:].decode("utf-8", "replace"))
    if code != 0:
        hint = f"all of its output: {log}; enroot takes credentials from ~/.config/enroot/.credentials alone"
        if settings.via == "srun" and re.search(r"^\s*srun: ", told, re.MULTILINE):
            hint = f"srun says so: sinfo tells whether Slurm answers, --srun-arg names a partition; all output: {log}"
        raise LlmbError(f"enroot import ended with exit code {code}:\n{told}", hint=hint)
    fault = image_files.superblock_fault(part)
    if fault is not None:
        raise LlmbError(f"enroot import reports success, but of its image {fault}:\n{told}", hint=f"see {log}")
    found = architecture_of(part)
    if found not in (None, architecture):
        message = f"enroot import wrote an image for {machine_name(found)}, not for {machine_name(architecture)}"
        raise LlmbError(message, hint="it takes what is there; ask whether the image is made for that architecture")


def _need_version_for_digest() -> None:
    told = shell.run(["enroot", "version"]).out.strip()
    found = re.match(r"(\d+)", told)
    if found is not None and int(found[1]) < 4:
        raise LlmbError(f"enroot {told} knows no references by digest", hint="name the image by its tag")


def _tail(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()][-_TAIL:]
    return "\n".join(f"  {line}" for line in lines) or "  (it printed nothing)"
