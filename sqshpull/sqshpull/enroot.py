# SPDX-License-Identifier: Apache-2.0
"""Builds an image with enroot import, here or through srun on a node, and checks the file.

The exit code alone is not enough: enroot may succeed with another architecture.
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from sqshpull import programs
from sqshpull.errors import PullError
from sqshpull.manifests import machine_name
from sqshpull.record import architecture_of, superblock_fault
from sqshpull.reference import (
    DOCKER_HUB,
    ImageReference,
    allows_plain_http,
    endpoint_of,
    mirrored,
)
from sqshpull.settings import PullSettings

_TAIL = 8  # lines of its output that an error shows


def enroot_fault(settings: PullSettings) -> PullError | None:
    """Return why enroot cannot be used, None if it can. A node's enroot is not checked here."""
    program = "srun" if settings.via == "srun" else "enroot"
    if shutil.which(program) is None:
        hint = "install it, or choose the builder 'stream', which needs mksquashfs 4.5 or newer"
        message = f"{program} is not installed on this machine"
        return PullError(message, hint=hint, code="program-missing", key=program)
    return None


def uri(reference: ImageReference) -> str:
    """Return ``docker://REGISTRY#repo:tag``, which every enroot reads. Digests need enroot 4.0."""
    registry = "" if reference.registry == DOCKER_HUB else f"{reference.registry}#"
    version = f"@{reference.digest}" if reference.digest else f":{reference.tag}"
    return f"docker://{registry}{reference.repository}{version}"


def import_argv(
    reference: ImageReference, architecture: str, part: Path, settings: PullSettings
) -> list[str]:
    """Return the command. Without ``-a``, enroot would take the architecture of its host."""
    image = uri(mirrored(reference, settings))
    argv = ["enroot", "import", "-a", machine_name(architecture), "-o", str(part), image]
    if settings.via == "srun":
        return ["srun", "--nodes=1", "--ntasks=1", *settings.srun_args, *argv]
    return argv


def _enroot_variables(
    reference: ImageReference, folder: Path | None, settings: PullSettings
) -> dict[str, str]:
    """Return enroot's variables: our compression instead of the slow lzo, plain HTTP if allowed.

    Its cache and temporary files are below ``folder``. None keeps the site's enroot.conf, because
    not every file system can hold the temporary ones.
    """
    variables = {"ENROOT_SQUASH_OPTIONS": " ".join(settings.options)}
    if folder is not None:
        variables["ENROOT_CACHE_PATH"] = str(folder / "cache")
        variables["ENROOT_TEMP_PATH"] = str(folder / "temp")
    if settings.processors is not None:
        variables["ENROOT_MAX_PROCESSORS"] = str(settings.processors)
    if allows_plain_http(endpoint_of(reference.registry, settings).host, settings):
        variables["ENROOT_ALLOW_HTTP"] = "yes"
    return variables


def build_enroot(
    reference: ImageReference,
    architecture: str,
    part: Path,
    folder: Path | None,
    settings: PullSettings,
    environ: Mapping[str, str],
    log: Path,
) -> None:
    """Run enroot to write the image to ``part``, and check the result. Raises PullError."""
    if reference.digest and settings.via == "here":
        _require_digests()
    if folder is not None:
        for name in ("cache", "temp"):
            (folder / name).mkdir(parents=True, exist_ok=True)
    argv = import_argv(reference, architecture, part, settings)
    start = log.stat().st_size if log.exists() else 0
    env = {**environ, **_enroot_variables(reference, folder, settings)}
    code = programs.run_logged(argv, log, env=env)
    printed = log.read_bytes()[start:].decode("utf-8", "replace")
    lines = [f"  {line}" for line in printed.splitlines() if line.strip()]
    output = "\n".join(lines[-_TAIL:]) or "  (no output)"
    if code != 0:
        raise _failed(code, output, settings, log)
    if (fault := superblock_fault(part)) is not None:
        message = (
            f"enroot import reports success, but its image is unusable: {fault.message}:\n{output}"
        )
        raise PullError(message, hint=f"its output is in {log}", code="image-damaged", key="enroot")
    image_architecture = architecture_of(part)
    if image_architecture not in (None, architecture):
        actual = machine_name(image_architecture)
        message = f"enroot import wrote an image for {actual}, not for {machine_name(architecture)}"
        hint = (
            "enroot takes another architecture if the registry lacks this one: ask the image's"
            " publisher"
        )
        raise PullError(message, hint=hint, code="architecture-wrong", key="enroot", value=actual)


def _failed(code: int, output: str, settings: PullSettings, log: Path) -> PullError:
    program = "enroot"
    hint = (
        f"its output is in {log}; enroot only reads credentials from ~/.config/enroot/.credentials"
    )
    if settings.via == "srun" and re.search(r"^\s*srun: ", output, re.MULTILINE):
        program = "srun"
        hint = (
            f"check Slurm with sinfo, or choose a partition with --srun-arg; the output is in {log}"
        )
    message = f"enroot import failed with exit code {code}:\n{output}"
    return PullError(message, hint=hint, code="program-failed", key=program, value=code)


def _require_digests() -> None:
    version = programs.run(["enroot", "version"]).out.strip()
    major = re.match(r"\d+", version)
    if major is not None and int(major[0]) < 4:
        message = f"enroot {version} does not support references by digest"
        hint = "use the image's tag"
        raise PullError(message, hint=hint, code="program-outdated", key="enroot", value=version)
