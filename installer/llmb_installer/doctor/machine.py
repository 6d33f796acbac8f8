# SPDX-License-Identifier: Apache-2.0
"""What this machine has: Pythons and what makes environments, pip's configuration, image tools, GPUs."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from llmb.errors import LlmbError
from llmb.system import shell
from llmb_installer.detect.machine import MachineFound
from llmb_installer.doctor.finding import LOCAL, SLURM, Finding, finding
from llmb_installer.images.enroot import enroot_fault
from llmb_installer.images.settings import BuildSettings
from llmb_installer.images.squash import squash_fault

SEED_PYTHON = "3.12"  # of the environments of NeMo
_DRIVER_SECONDS = 30.0


def findings(
    machine: MachineFound, environ: Mapping[str, str], *, containers: bool, cpu_alone: bool = False
) -> Iterator[Finding]:
    """Look at this machine; ``containers``: whether a Slurm cluster here would run images; ``cpu_alone``: no GPU is
    wanted here."""
    yield from _pythons(machine, containers=containers)
    yield from _pip(environ)
    yield from _image_tools(containers=containers)
    yield _gpus(cpu_alone=cpu_alone)


def _pythons(machine: MachineFound, *, containers: bool) -> Iterator[Finding]:
    yield Finding(check="this machine", state="ok", found=machine.architecture)
    needed = (LOCAL,) if containers else (LOCAL, SLURM)
    there = ", ".join(machine.pythons)
    yield finding("Python", None if there else "none on PATH", there, needed, "install Python 3.11 or newer")
    has_uv = "uv" in machine.venv_types
    if SEED_PYTHON not in machine.pythons:
        said = "not on PATH; NeMo without containers wants it"
        fetched = "uv fetches it where the answers say 'python_download: true'; else install it, or load its module"
        fix = fetched if has_uv else "install it, load its module, or get uv, which can fetch it"
        yield Finding(check=f"Python {SEED_PYTHON}", state="warning", found=said, fix=fix)
    fix = "pip install uv: makes environments in a tenth of the time"
    yield finding("uv", None if has_uv else "not on PATH", str(shutil.which("uv")), (), fix)
    if (conda := shutil.which("conda")) is not None:
        yield Finding(check="conda", state="ok", found=conda)


def _pip(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Where pip takes its settings from; their values may hold passwords, and are not shown."""
    home = Path(environ.get("HOME") or "~").expanduser()
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    named = environ.get("PIP_CONFIG_FILE")
    files = [Path(named)] if named else [config / "pip" / "pip.conf", home / ".pip" / "pip.conf", Path("/etc/pip.conf")]
    there = [str(path) for path in files if path.is_file()] + sorted(
        name for name in environ if name.startswith("PIP_")
    )
    yield Finding(check="pip's configuration", state="ok", found=", ".join(there) or "none: pypi.org is asked")
    if named and not Path(named).exists():
        fix = "unset it, or write the file"
        yield Finding(check="PIP_CONFIG_FILE", state="warning", found=f"{named} is not there", fix=fix)


def _image_tools(*, containers: bool) -> Iterator[Finding]:
    """Either of the two builders of images is enough."""
    settings = BuildSettings()
    faults = {"mksquashfs": squash_fault(settings), "enroot": enroot_fault(settings)}
    is_enough = None in faults.values()
    for name, error in faults.items():
        if error is None:
            yield Finding(check=name, state="ok", found=_version(name))
            continue
        said = error.message.splitlines()[0]
        if is_enough:
            yield Finding(check=name, state="ok", found=f"{said}; the other one builds images")
        else:
            yield finding(name, said, "", (SLURM,) if containers else (), error.hint)


def _version(program: str) -> str:
    argv = [program, "-version"] if program == "mksquashfs" else [program, "version"]
    try:
        said = shell.run(argv, timeout=_DRIVER_SECONDS).out.splitlines()
    except LlmbError as error:
        return error.message
    return said[0].strip() if said else str(shutil.which(program))


def _gpus(*, cpu_alone: bool) -> Finding:
    if cpu_alone:
        return Finding(check="GPU driver", state="ok", found="not asked: the installation is for CPUs")
    if shutil.which("nvidia-smi") is None:
        fix = "none is needed for gpu_type cpu, nor on a login node"
        return Finding(check="GPU driver", state="warning", found="no nvidia-smi here", fix=fix)
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = shell.run(asked, timeout=_DRIVER_SECONDS)
    except LlmbError as error:
        return Finding(check="GPU driver", state="warning", found=error.message, fix="nvidia-smi has to answer")
    lines = (done.out if done.code == 0 else done.out + done.err).strip().splitlines() or ["it says nothing"]
    fault = None if done.code == 0 else lines[0]
    fix = "the driver does not answer: load it, or ask who runs this machine"
    return finding("GPU driver", fault, f"{len(lines)} × {lines[0]}", (), fix)
