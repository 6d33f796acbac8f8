# SPDX-License-Identifier: Apache-2.0
"""Writes the members into llmb's requirements and extras: by path from a checkout, by version with
LLMB_RELEASE.

Puts the pages of the documentation into the wheel.
"""

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

# pip reads the requirements before it compares the version of Python.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(
        f"llmb needs Python 3.11 or newer, and this is {sys.version.split()[0]}. uv or conda brings"
        " one without root: uv venv --python 3.12 ~/llmb-venv"
    )


class Members(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        def reference(folder: str) -> str:
            if os.environ.get("LLMB_RELEASE"):
                return f"=={metadata['version']}"
            return f" @ {Path(self.root, folder).as_uri()}"

        def references(folders: dict[str, str]) -> list[str]:
            return [name + reference(folder) for name, folder in folders.items()]

        metadata["dependencies"] = [*self.config["requires"], *references(self.config["members"])]
        extras = self.config["extras"].items()
        metadata["optional-dependencies"] = {
            extra: references(folders) for extra, folders in extras
        }


class Pages(BuildHookInterface[Any]):
    """Includes docs/*.md as llmb/docs/, for `llmb-run docs`; an editable install reads those of the
    checkout.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        pages = Path(self.root, "docs").glob("*.md")
        build_data["force_include"] |= {str(page): f"llmb/docs/{page.name}" for page in pages}
