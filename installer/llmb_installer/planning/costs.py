# SPDX-License-Identifier: Apache-2.0
"""The costs of a plan before it starts: bytes to fetch, disk space, and what would fail."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from llmb.core import files
from llmb.core.parallel import run_bounded
from llmb.core.units import bytes_in_words
from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError, PreflightError, as_fault
from llmb_installer import record
from llmb_installer.images.image_step import FOR_PODS, ImageStep, check_all
from llmb_installer.step import BuildContext, InstallStep, StepCost

_CHECKS = 4  # steps that are checked at a time
RESERVE = 50_000_000  # bytes kept free for logs and records


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A file system that the plan writes to: a folder on it, bytes needed and bytes free."""

    folder: Path
    needed: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The estimate of each step by key, the disks, faults that prevent it, and ``doubts``."""

    estimates: Mapping[str, StepCost]
    disks: tuple[Disk, ...]
    faults: tuple[Fault, ...]
    doubts: tuple[str, ...] = ()

    @property
    def fetch(self) -> int:
        return sum(estimate.fetch or 0 for estimate in self.estimates.values())

    def require(self) -> None:
        if self.faults:
            raise PreflightError([*self.faults])


def find_costs(steps: Sequence[InstallStep], install: Path, context: BuildContext) -> Costs:
    """Check every step, several at a time. Nothing is changed."""
    images = [step for step in steps if isinstance(step, ImageStep) and step.target is not None]
    by_reference = [step for step in steps if isinstance(step, ImageStep) and step.target is None]
    other_steps = [step for step in steps if not isinstance(step, ImageStep)]
    image_costs, faults = check_all(images, context) if images else ([], [])
    _, doubtful = check_all(by_reference, context) if by_reference else ([], [])
    estimates = {step.key: StepCost(fetch=0, disk=0) for step in by_reference}
    estimates |= {step.key: estimate for step, estimate in image_costs}
    checked: dict[str, StepCost | Fault] = {}
    run_bounded(
        other_steps, lambda step: checked.update({step.key: _check(step, context)}), workers=_CHECKS
    )
    faults += [fault for step in other_steps if isinstance(fault := checked[step.key], Fault)]
    estimates |= {
        key: estimate for key, estimate in checked.items() if isinstance(estimate, StepCost)
    }
    disks = _disks(steps, estimates, install)
    return Costs(
        estimates=estimates,
        disks=disks,
        faults=(*faults, *_read_only(install, steps), *_too_small(disks)),
        doubts=(*(fault.message for fault in doubtful), *([FOR_PODS] if doubtful else [])),
    )


def _check(step: InstallStep, context: BuildContext) -> StepCost | Fault:
    try:
        return step.check(context)
    except LlmbError as error:
        return as_fault(error, step.key)


def _disks(
    steps: Sequence[InstallStep], estimates: Mapping[str, StepCost], install: Path
) -> tuple[Disk, ...]:
    """The file systems, each with the bytes that all steps need there."""
    needed: dict[int, int] = {}
    folders: dict[int, Path] = {}
    for step in steps:
        folder = files.nearest_folder(step.path or install)
        device = folder.stat().st_dev
        folders.setdefault(device, step.path.parent if step.path is not None else install)
        needed[device] = needed.get(device, 0) + (
            (estimates[step.key].disk or 0) if step.key in estimates else 0
        )
    return tuple(
        Disk(
            folder=folders[device],
            needed=total,
            free=shutil.disk_usage(files.nearest_folder(folders[device])).free,
        )
        for device, total in needed.items()
    )


def _read_only(install: Path, steps: Sequence[InstallStep]) -> list[Fault]:
    """A fault for each folder that the user may not write.

    One fault if that is the install directory.
    """
    places = [
        install / record.FOLDER,
        *(step.path.parent for step in steps if step.path is not None),
    ]
    folders = dict.fromkeys(files.nearest_folder(place) for place in (install, *places))
    closed = [folder for folder in folders if not os.access(folder, os.W_OK | os.X_OK)]
    if files.nearest_folder(install) in closed:
        closed = [files.nearest_folder(install)]
    hint = "choose a folder that you may write (--install DIR), or ask its owner"
    return [
        Fault(
            place=str(install),
            message=f"you may not write {folder}",
            hint=hint,
            code="not-writable",
            value=str(folder),
        )
        for folder in closed
    ]


def _too_small(disks: Sequence[Disk]) -> list[Fault]:
    hint = "free space there, or choose another folder (--install DIR; image_folder in the answers)"
    logs = f"{bytes_in_words(RESERVE)} for logs"
    return [
        Fault(
            place=str(disk.folder),
            message=(
                f"{bytes_in_words(disk.needed)} and {logs} are needed, {bytes_in_words(disk.free)}"
                " are free"
            ),
            hint=hint,
            code="disk-too-small",
            value=disk.needed,
        )
        for disk in disks
        if disk.needed and disk.needed + RESERVE > disk.free
    ]
