# SPDX-License-Identifier: Apache-2.0
"""Adds the members to llmb's requirements: by path from a checkout, by version when LLMB_RELEASE is set."""

import os
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Members(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        def reference(folder: str) -> str:
            if os.environ.get("LLMB_RELEASE"):
                return f"=={metadata['version']}"
            return f" @ {Path(self.root, folder).as_uri()}"

        members = [name + reference(folder) for name, folder in self.config["members"].items()]
        metadata["dependencies"] = [*self.config["requires"], *members]
