# SPDX-License-Identifier: Apache-2.0
"""What a plan costs, asked before anything starts: bytes to fetch, bytes on each disk, and what stands in its way."""

import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from llmb.errors import Fault, LlmbError, PreflightError
from llmb_installer.images.image_step import FOR_PODS, ImageStep, check_all
from llmb_installer.record import record
from llmb_installer.registry import size
from llmb_installer.steps import Context, Estimate, Step

RESERVE = 50_000_000  # bytes that stay free for logs and records


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A file system that the plan writes to: a folder on it, the bytes needed there and those free."""

    folder: Path
    needed: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What each step to do costs, by its key; the disks; all that is known to stand in the way, and what may."""

    estimates: Mapping[str, Estimate]
    disks: tuple[Disk, ...]
    faults: tuple[Fault, ...]
    doubts: tuple[str, ...] = ()

    @property
    def fetch(self) -> int:
        """Bytes to fetch, as far as they are known."""
        return sum(estimate.fetch or 0 for estimate in self.estimates.values())

    def require(self) -> None:
        """Raise PreflightError with every fault, if there is one."""
        if self.faults:
            raise PreflightError([*self.faults])


def find_costs(steps: Sequence[Step], install: Path, context: Context) -> Costs:
    """Ask every step what it costs, several at a time; nothing is changed."""
    images = [step for step in steps if isinstance(step, ImageStep) and step.target is not None]
    by_reference = [step for step in steps if isinstance(step, ImageStep) and step.target is None]
    others = [step for step in steps if not isinstance(step, ImageStep)]
    found, faults = check_all(images, context) if images else ([], [])
    _, doubtful = check_all(by_reference, context) if by_reference else ([], [])
    estimates = {step.key: Estimate(fetch=0, disk=0) for step in by_reference}
    estimates |= {step.key: estimate for step, estimate in found}
    with ThreadPoolExecutor(4) as pool:
        for step, answer in zip(others, pool.map(lambda step: _check(step, context), others), strict=True):
            if isinstance(answer, Fault):
                faults.append(answer)
            else:
                estimates[step.key] = answer
    disks = _disks(steps, estimates, install)
    return Costs(
        estimates=estimates,
        disks=disks,
        faults=(*faults, *_read_only(install, steps), *_too_small(disks)),
        doubts=(*(fault.message for fault in doubtful), *([FOR_PODS] if doubtful else [])),
    )


def _check(step: Step, context: Context) -> Estimate | Fault:
    try:
        return step.check(context)
    except LlmbError as error:
        return Fault(place=step.key, message=error.message, hint=error.hint)


def _disks(steps: Sequence[Step], estimates: Mapping[str, Estimate], install: Path) -> tuple[Disk, ...]:
    """The file systems, each with the bytes of all steps that write to it."""
    needed: dict[int, int] = {}
    folders: dict[int, Path] = {}
    for step in steps:
        folder = existing(step.path or install)
        device = folder.stat().st_dev
        folders.setdefault(device, step.path.parent if step.path is not None else install)
        needed[device] = needed.get(device, 0) + ((estimates[step.key].disk or 0) if step.key in estimates else 0)
    return tuple(
        Disk(folder=folders[device], needed=total, free=shutil.disk_usage(existing(folders[device])).free)
        for device, total in needed.items()
    )


def existing(path: Path) -> Path:
    """The nearest folder of ``path`` that is there."""
    return next(parent for parent in (path, *path.parents) if parent.is_dir())


def _read_only(install: Path, steps: Sequence[Step]) -> list[Fault]:
    """A fault for each folder to write to that is not this user's; one where all of the install directory is not."""
    places = [install / record.FOLDER, *(step.path.parent for step in steps if step.path is not None)]
    folders = dict.fromkeys(existing(place) for place in (install, *places))
    closed = [folder for folder in folders if not os.access(folder, os.W_OK | os.X_OK)]
    if existing(install) in closed:
        closed = [existing(install)]
    hint = "choose a folder that you may write: --install DIR; or ask its owner"
    return [Fault(place=str(install), message=f"{folder} cannot be written by you", hint=hint) for folder in closed]


def _too_small(disks: Sequence[Disk]) -> list[Fault]:
    hint = "free space there, or choose another folder: --install DIR, image_folder in the answers"
    return [
        Fault(
            place=str(disk.folder),
            message=f"{size(disk.needed)} are needed, {size(RESERVE)} more for logs, and {size(disk.free)} are free",
            hint=hint,
        )
        for disk in disks
        if disk.needed and disk.needed + RESERVE > disk.free
    ]
