# SPDX-License-Identifier: Apache-2.0
"""Findings about this machine: Pythons, tools for environments and images, GPUs, folders, secrets."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from llmb.errors import LlmbError
from llmb.system import files, secrets, shell
from llmb.text.units import bytes_in_words
from llmb_installer.detect.machine import ANSWER_WITHIN, FolderFound, MachineFound, find_folder
from llmb_installer.doctor import ALL, LOCAL, RUNAI, SLURM, Finding, State, finding, wrong
from llmb_installer.images import enroot, squash

NEMO_PYTHON = "3.12"  # of NeMo's environments
IMAGE_BYTES = 20e9  # the most that a NeMo environment, or an image with its layers, takes
TEMPORARY_BYTES = 5e9  # what pip needs to unpack and build


def tool_findings(
    machine: MachineFound, environ: Mapping[str, str], *, containers: bool, cpu_only: bool = False
) -> Iterator[Finding]:
    """Examine this machine's tools.

    ``containers``: a Slurm cluster here would run images; ``cpu_only``: no GPU is needed here.
    """
    yield from _pythons(machine, containers=containers)
    yield from _pip(environ)
    yield from _image_tools(containers=containers)
    yield _gpus(cpu_only=cpu_only)


def _pythons(machine: MachineFound, *, containers: bool) -> Iterator[Finding]:
    yield Finding(check="this machine", state="ok", found=machine.architecture)
    needed_by = (LOCAL,) if containers else (LOCAL, SLURM)
    found = ", ".join(machine.pythons)
    yield finding("Python", None if found else "none on PATH", found, needed_by, "install Python 3.11 or newer")
    has_uv = "uv" in machine.venv_types
    if NEMO_PYTHON not in machine.pythons:
        with_uv = "set 'python_download: true' in the answers to let uv download it, or install it, or load its module"
        fix = with_uv if has_uv else "install it, load its module, or install uv, which can download it"
        missing = "not on PATH; NeMo without containers needs it"
        yield Finding(check=f"Python {NEMO_PYTHON}", state="warning", found=missing, fix=fix)
    fix = "pip install uv: it creates environments ten times as fast"
    yield finding("uv", None if has_uv else "not on PATH", str(shutil.which("uv")), (), fix)
    if (conda := shutil.which("conda")) is not None:
        yield Finding(check="conda", state="ok", found=conda)


def _pip(environ: Mapping[str, str]) -> Iterator[Finding]:
    """The sources of pip's settings; the values may hold passwords and are not shown."""
    home = files.expand(environ.get("HOME") or "~")
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    named = environ.get("PIP_CONFIG_FILE")
    paths = [Path(named)] if named else [config / "pip" / "pip.conf", home / ".pip" / "pip.conf", Path("/etc/pip.conf")]
    found = [str(path) for path in paths if path.is_file()]
    found += sorted(name for name in environ if name.startswith("PIP_"))
    yield Finding(check="pip's configuration", state="ok", found=", ".join(found) or "none: pip uses pypi.org")
    if named and not Path(named).exists():
        fix = "unset PIP_CONFIG_FILE, or write the file"
        yield Finding(check="PIP_CONFIG_FILE", state="warning", found=f"{named} does not exist", fix=fix)


def _image_tools(*, containers: bool) -> Iterator[Finding]:
    """Either of the two image builders is enough."""
    settings = squash.BuildSettings()
    errors = {"mksquashfs": squash.squash_fault(settings), "enroot": enroot.enroot_fault(settings)}
    is_enough = None in errors.values()
    for name, error in errors.items():
        if error is None:
            yield Finding(check=name, state="ok", found=_version(name))
            continue
        reason = error.message.splitlines()[0]
        if is_enough:
            yield Finding(check=name, state="ok", found=f"{reason}; the other tool builds images")
        else:
            yield finding(name, reason, "", (SLURM,) if containers else (), error.hint)


def _version(program: str) -> str:
    argv = [program, "-version"] if program == "mksquashfs" else [program, "version"]
    try:
        lines = shell.run(argv, timeout=ANSWER_WITHIN).out.splitlines()
    except LlmbError as error:
        return error.message
    return lines[0].strip() if lines else str(shutil.which(program))


def _gpus(*, cpu_only: bool) -> Finding:
    check = "GPU driver"
    if cpu_only:
        return Finding(check=check, state="ok", found="not checked: the installation is for CPUs")
    if shutil.which("nvidia-smi") is None:
        fix = "not needed for gpu_type cpu, nor on a login node"
        return Finding(check=check, state="warning", found="there is no nvidia-smi here", fix=fix)
    argv = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = shell.run(argv, timeout=ANSWER_WITHIN)
    except LlmbError as error:
        return Finding(check=check, state="warning", found=error.message, fix="check the driver with nvidia-smi")
    lines = (done.out if done.code == 0 else done.out + done.err).strip().splitlines() or ["nvidia-smi prints nothing"]
    fix = "the driver does not answer: load it, or ask the administrators of this machine"
    return finding(check, None if done.code == 0 else lines[0], f"{len(lines)} × {lines[0]}", (), fix)


def folder_findings(
    install: Path, environ: Mapping[str, str], *, is_installed: bool, runs: Path | None = None, is_local: bool = False
) -> Iterator[Finding]:
    """Examine the folder of an installation, or for one, and the user's folders.

    ``runs``: the folder for runs where it is not in ``install``; ``is_local``: only this machine uses the folder.
    """
    found = find_folder(install)
    yield _writable(found, is_installed=is_installed, runs=runs)
    yield _shared(found, is_local=is_local)
    free = f"{bytes_in_words(found.free)} free on {found.mount}"
    needed = f"{free}; an image or an environment needs up to {bytes_in_words(round(IMAGE_BYTES))}"
    fix = "free some space, or install elsewhere: --install DIR"
    yield finding("disk", None if found.free >= IMAGE_BYTES else needed, free, (), fix)
    tmp = find_folder(Path(environ.get("TMPDIR") or "/tmp"))
    free = f"{tmp.path}: {bytes_in_words(tmp.free)} free"
    fault = f"you cannot write to {tmp.path}" if not tmp.writable else free if tmp.free < TEMPORARY_BYTES else None
    fix = "set TMPDIR to a folder with more space"
    yield finding("temporary files", fault, free, ALL if not tmp.writable else (), fix)
    yield _secrets()


def _writable(found: FolderFound, *, is_installed: bool, runs: Path | None) -> Finding:
    """Whether the user can write to the folder; not needed in a shared installation with its runs elsewhere."""
    check = "install folder"
    if found.writable:
        return Finding(check=check, state="ok", found=f"you can write to {found.path}")
    if not is_installed:
        fix = "choose a folder that you can write to: --install DIR"
        text = f"you cannot write to {found.nearest}"
        return Finding(check=check, state="missing", found=text, needed_by=ALL, fix=fix)
    text = f"you can only read {found.path}"
    if runs is not None and find_folder(runs).writable:
        return Finding(check=check, state="ok", found=f"{text}; your runs are in {runs}")
    fix = "add 'experiments_root: DIR', a folder of yours, to ~/.config/llmb/config.yaml"
    return Finding(check=check, state="wrong", found=f"{text}, and runs are there", needed_by=ALL, fix=fix)


def _shared(found: FolderFound, *, is_local: bool) -> Finding:
    """Whether compute nodes see the folder."""
    seen = {True: "other machines see it", False: "only this machine sees it", None: "shared or not: unknown"}
    state: State = "warning" if found.shared is False and not is_local else "ok"
    fix = "compute nodes must see the install folder: choose one on NFS, Lustre or the like"
    return Finding(
        check="shared folder",
        state=state,
        found=f"{found.file_system}: {seen[found.shared]}",
        needed_by=(SLURM, RUNAI),
        fix=fix if state == "warning" else None,
    )


def _secrets() -> Finding:
    path = files.expand(secrets.SECRETS_FILE)
    if not path.exists():
        text = f"no {secrets.SECRETS_FILE}; secrets may also be in the environment"
        return Finding(check="secrets", state="ok", found=text)
    try:
        names = sorted(secrets.names())
    except LlmbError as error:
        return wrong("secrets", error, ALL)
    mode = path.stat().st_mode & 0o777
    return Finding(check="secrets", state="ok", found=f"{path}, mode {mode:o}: {', '.join(names) or 'empty'}")
