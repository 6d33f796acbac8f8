# SPDX-License-Identifier: Apache-2.0
"""A step that makes a Python environment."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from llmb_installer.step import Context, Estimate, Facts
from llmb_installer.venv import contents, create, repair
from llmb_installer.venv.spec import VenvSpec

# Packages whose versions a summary shows.
SHOWN = ("torch", "transformers", "nemo_toolkit", "nemo-toolkit", "megatron-core")


@dataclass(frozen=True, slots=True, kw_only=True)
class VenvStep(VenvSpec):
    """Make, repair or keep the environment."""

    def is_whole(self, facts: Facts) -> bool:
        """Whether no file of a package is missing; contents are not read."""
        faults = contents.faults(self.folder, facts, deep=False)
        return not any(fault.code == contents.DAMAGED for fault in faults)

    def is_repairable(self, install: Path) -> bool:
        """Whether the environment in use is this one, with damaged packages at most; contents are not read."""
        return repair.is_likely(self, install)

    def check(self, context: Context) -> Estimate:
        """Check for the tool and the Python; estimate the size of the packages. Raises LlmbError."""
        return create.check(self, context)

    def build(self, context: Context) -> Facts:
        """Repair the environment in use, or build another and switch to it. Raises LlmbError."""
        return create.build(self, context)


is_there, verify = contents.is_there, contents.verify


def remove(name: str, facts: Facts, install: Path) -> None:
    """Delete the link, then every build of this name."""
    link = contents.folder_of(name, install)
    if link.is_symlink():
        link.unlink()
    elif link.is_dir():
        shutil.rmtree(link)
    contents.sweep(link.parent, name)


def describe(name: str, facts: Facts) -> str:
    """Its Python and its main packages."""
    packages = facts.get("packages", {})
    names = [f"{package} {packages[package]}" for package in SHOWN if package in packages]
    count = f"{len(packages)} package{'s' * (len(packages) != 1)}"
    return ", ".join([f"Python {facts.get('python')}", *names, count])
