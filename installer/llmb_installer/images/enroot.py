# SPDX-License-Identifier: Apache-2.0
"""Builds an image with enroot import, here or through srun on a node, and checks the file, not only the exit code."""

import re
import shutil
from pathlib import Path

from llmb.config.images import superblock_fault
from llmb.errors import LlmbError
from llmb.system import shell
from llmb_installer.images.facts import architecture_of
from llmb_installer.images.squash import BuildSettings
from llmb_installer.registry.manifests import machine_name
from llmb_installer.registry.reference import DOCKER_HUB, Reference, allows_plain_http, endpoint_of, mirrored
from llmb_installer.step import Context

_TAIL = 8  # lines of its output that an error shows


def enroot_fault(settings: BuildSettings) -> LlmbError | None:
    """Why enroot cannot be used; None if it can. Whether a node has it is not known here."""
    program = "srun" if settings.via == "srun" else "enroot"
    if shutil.which(program) is None:
        hint = "install it, or choose the builder 'stream', which needs mksquashfs 4.5 or newer"
        message = f"{program} is not installed on this machine"
        return LlmbError(message, hint=hint, code="program-missing", key=program)
    return None


def uri(reference: Reference) -> str:
    """``docker://REGISTRY#repo:tag``, which every enroot reads; digests only from 4.0."""
    registry = "" if reference.registry == DOCKER_HUB else f"{reference.registry}#"
    version = f"@{reference.digest}" if reference.digest else f":{reference.tag}"
    return f"docker://{registry}{reference.repository}{version}"


def import_argv(reference: Reference, architecture: str, part: Path, settings: BuildSettings) -> list[str]:
    """The command; without ``-a``, enroot would take the architecture of its host."""
    image = uri(mirrored(reference, settings))
    argv = ["enroot", "import", "-a", machine_name(architecture), "-o", str(part), image]
    if settings.via == "srun":
        return ["srun", "--nodes=1", "--ntasks=1", "--job-name=llmb-image", *settings.srun_args, *argv]
    return argv


def _environment(reference: Reference, folder: Path | None, settings: BuildSettings) -> dict[str, str]:
    """enroot's own variables: our compression instead of the slow lzo; a registry without TLS where that is allowed.

    Its cache and temporary files are below ``folder``; None keeps the site's enroot.conf, because not every file system
    can hold the temporary ones.
    """
    own = {"ENROOT_SQUASH_OPTIONS": " ".join(settings.options)}
    if folder is not None:
        own |= {"ENROOT_CACHE_PATH": str(folder / "cache"), "ENROOT_TEMP_PATH": str(folder / "temp")}
    if settings.processors is not None:
        own["ENROOT_MAX_PROCESSORS"] = str(settings.processors)
    if allows_plain_http(endpoint_of(reference.registry, settings).host, settings):
        own["ENROOT_ALLOW_HTTP"] = "yes"
    return own


def build_enroot(
    reference: Reference,
    architecture: str,
    part: Path,
    folder: Path | None,
    settings: BuildSettings,
    context: Context,
) -> None:
    """Run enroot to write the image to ``part``, and check the result. Raises LlmbError."""
    if reference.digest and settings.via == "here":
        _require_digests()
    if folder is not None:
        for name in ("cache", "temp"):
            (folder / name).mkdir(parents=True, exist_ok=True)
    argv, log = import_argv(reference, architecture, part, settings), context.log
    start = log.stat().st_size if log.exists() else 0
    code = shell.run_logged(argv, log, env={**context.environ, **_environment(reference, folder, settings)})
    printed = [line for line in log.read_bytes()[start:].decode("utf-8", "replace").splitlines() if line.strip()]
    output = "\n".join(f"  {line}" for line in printed[-_TAIL:]) or "  (no output)"
    if code != 0:
        program = "enroot"
        hint = f"its output is in {log}; enroot only reads credentials from ~/.config/enroot/.credentials"
        if settings.via == "srun" and re.search(r"^\s*srun: ", output, re.MULTILINE):
            program = "srun"
            hint = f"check Slurm with sinfo, or choose a partition with --srun-arg; the output is in {log}"
        message = f"enroot import failed with exit code {code}:\n{output}"
        raise LlmbError(message, hint=hint, code="program-failed", key=program, value=code)
    if (fault := superblock_fault(part)) is not None:
        message = f"enroot import reports success, but its image is unusable: {fault.message}:\n{output}"
        raise LlmbError(message, hint=f"its output is in {log}", code="image-damaged", key="enroot")
    found = architecture_of(part)
    if found not in (None, architecture):
        message = f"enroot import wrote an image for {machine_name(found)}, not for {machine_name(architecture)}"
        hint = "enroot takes another architecture if the registry lacks this one: ask the image's publisher"
        raise LlmbError(message, hint=hint, code="architecture-wrong", key="enroot", value=machine_name(found))


def _require_digests() -> None:
    version = shell.run(["enroot", "version"]).out.strip()
    found = re.match(r"(\d+)", version)
    if found is not None and int(found[1]) < 4:
        message, hint = f"enroot {version} does not support references by digest", "use the image's tag"
        raise LlmbError(message, hint=hint, code="program-outdated", key="enroot", value=version)
