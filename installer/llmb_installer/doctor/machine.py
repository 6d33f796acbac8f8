# SPDX-License-Identifier: Apache-2.0
"""Findings about this machine: tools, GPUs, folders, secrets."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from llmb.contract.finding import Finding, State, finding, wrong
from llmb.core import files, secrets, shell
from llmb.core.units import bytes_in_words
from llmb.errors import LlmbError
from llmb_installer.detect.machine import ANSWER_WITHIN, FolderFound, MachineFound, find_folder
from llmb_installer.doctor.cluster_types import ALL, LOCAL, RUNAI, SLURM
from llmb_installer.images.adapter import builder_faults

NEMO_PYTHON = "3.12"  # of NeMo's environments
IMAGE_BYTES = 20e9  # the most that a NeMo environment, or an image with its layers, takes
TEMPORARY_BYTES = 5e9  # what pip needs to unpack and build


def examine_tools(
    machine: MachineFound, environ: Mapping[str, str], *, containers: bool, cpu_only: bool = False
) -> Iterator[Finding]:
    """Examine this machine's tools.

    With ``containers`` a Slurm cluster here would run images. With ``cpu_only`` no GPU is needed.
    """
    yield from _pythons(machine, containers=containers)
    yield from _pip(environ)
    yield from _image_tools(containers=containers)
    yield _gpus(cpu_only=cpu_only)


def _pythons(machine: MachineFound, *, containers: bool) -> Iterator[Finding]:
    yield Finding(check="this machine", state="ok", found=machine.architecture)
    needed_by = (LOCAL,) if containers else (LOCAL, SLURM)
    versions = ", ".join(machine.pythons)
    yield finding(
        "Python",
        None if versions else "none on PATH",
        versions,
        needed_by,
        "install Python 3.11 or newer",
    )
    has_uv = "uv" in machine.venv_types
    if NEMO_PYTHON not in machine.pythons:
        with_uv = (
            "set 'python_download: true' in the answers to let uv download it, or install it, or"
            " load its module"
        )
        fix = (
            with_uv
            if has_uv
            else "install it, load its module, or install uv, which can download it"
        )
        missing = "not on PATH; NeMo without containers needs it"
        yield Finding(check=f"Python {NEMO_PYTHON}", state="warning", found=missing, fix=fix)
    fix = "pip install uv: it creates environments ten times as fast"
    yield finding("uv", None if has_uv else "not on PATH", str(shutil.which("uv")), (), fix)
    if (conda := shutil.which("conda")) is not None:
        yield Finding(check="conda", state="ok", found=conda)


def _pip(environ: Mapping[str, str]) -> Iterator[Finding]:
    """The sources of pip's settings. The values may hold passwords and are not shown."""
    home = files.expand(environ.get("HOME") or "~")
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    named = environ.get("PIP_CONFIG_FILE")
    paths = (
        [Path(named)]
        if named
        else [config / "pip" / "pip.conf", home / ".pip" / "pip.conf", Path("/etc/pip.conf")]
    )
    sources = [str(path) for path in paths if path.is_file()]
    sources += sorted(name for name in environ if name.startswith("PIP_"))
    yield Finding(
        check="pip's configuration",
        state="ok",
        found=", ".join(sources) or "none: pip uses pypi.org",
    )
    if named and not Path(named).exists():
        fix = "unset PIP_CONFIG_FILE, or write the file"
        yield Finding(
            check="PIP_CONFIG_FILE", state="warning", found=f"{named} does not exist", fix=fix
        )


def _image_tools(*, containers: bool) -> Iterator[Finding]:
    """Either of the two image builders is enough."""
    errors = builder_faults()
    is_enough = None in errors.values()
    for name, error in errors.items():
        if error is None:
            yield Finding(check=name, state="ok", found=_version(name))
            continue
        reason = error.message.splitlines()[0]
        if is_enough:
            text = f"not needed, the other tool builds images: {reason}"
            yield Finding(check=name, state="ok", found=text)
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
        completed = shell.run(argv, timeout=ANSWER_WITHIN)
    except LlmbError as error:
        return Finding(
            check=check,
            state="warning",
            found=error.message,
            fix="check the driver with nvidia-smi",
        )
    lines = (
        completed.out if completed.code == 0 else completed.out + completed.err
    ).strip().splitlines() or ["nvidia-smi prints nothing"]
    fix = "the driver does not answer: load it, or ask the administrators of this machine"
    return finding(
        check, None if completed.code == 0 else lines[0], f"{len(lines)} × {lines[0]}", (), fix
    )


def examine_folders(
    install: Path,
    environ: Mapping[str, str],
    *,
    is_installed: bool,
    runs: Path | None = None,
    is_local: bool = False,
) -> Iterator[Finding]:
    """Examine the folder of an installation, or for one, and the user's folders.

    ``runs`` is the folder for runs if it is outside of ``install``. ``is_local`` means that only
    this machine uses the folder.
    """
    folder = find_folder(install)
    yield _writable(folder, is_installed=is_installed, runs=runs)
    yield _shared(folder, is_local=is_local)
    free = f"{bytes_in_words(folder.free)} free on {folder.mount}"
    needed = f"{free}; an image or an environment needs up to {bytes_in_words(round(IMAGE_BYTES))}"
    fix = "free some space, or install elsewhere: --install DIR"
    yield finding("disk", None if folder.free >= IMAGE_BYTES else needed, free, (), fix)
    tmp = find_folder(Path(environ.get("TMPDIR") or "/tmp"))
    free = f"{tmp.path}: {bytes_in_words(tmp.free)} free"
    fault = (
        f"you cannot write to {tmp.path}"
        if not tmp.writable
        else free
        if tmp.free < TEMPORARY_BYTES
        else None
    )
    fix = "set TMPDIR to a folder with more space"
    yield finding("temporary files", fault, free, ALL if not tmp.writable else (), fix)
    yield _secrets()


def _writable(folder: FolderFound, *, is_installed: bool, runs: Path | None) -> Finding:
    """Return True if the user can write to the folder.

    Not needed in a shared installation with its runs elsewhere.
    """
    check = "install folder"
    if folder.writable:
        return Finding(check=check, state="ok", found=f"you can write to {folder.path}")
    if not is_installed:
        fix = "choose a folder that you can write to: --install DIR"
        text = f"you cannot write to {folder.nearest}"
        return Finding(check=check, state="missing", found=text, needed_by=ALL, fix=fix)
    text = f"you can only read {folder.path}"
    if runs is not None and find_folder(runs).writable:
        return Finding(check=check, state="ok", found=f"{text}; your runs are in {runs}")
    fix = "add 'experiments_root: DIR', a folder of yours, to ~/.config/llmb/config.yaml"
    return Finding(
        check=check, state="wrong", found=f"{text}, and runs are there", needed_by=ALL, fix=fix
    )


def _shared(folder: FolderFound, *, is_local: bool) -> Finding:
    """Return True if compute nodes see the folder."""
    visibility = {
        True: "other machines see it",
        False: "only this machine sees it",
        None: "shared or not: unknown",
    }
    state: State = "warning" if folder.shared is False and not is_local else "ok"
    fix = "compute nodes must see the install folder: choose one on NFS, Lustre or the like"
    return Finding(
        check="shared folder",
        state=state,
        found=f"{folder.file_system}: {visibility[folder.shared]}",
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
    return Finding(
        check="secrets", state="ok", found=f"{path}, mode {mode:o}: {', '.join(names) or 'empty'}"
    )
