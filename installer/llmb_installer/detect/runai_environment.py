# SPDX-License-Identifier: Apache-2.0
"""What the environment says of a Run:ai cluster, by the variables that its users set already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLES = ("BASE_URL", "PROJECT_NAME", "CUSTOM_MOUNT", "PVC_DIR", "APP_ID", "APP_SECRET")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunaiFound:
    """What is said of Run:ai; ``pvc`` is name, path and claim. Of the secret only whether it is set."""

    base_url: str | None = None
    project: str | None = None
    pvc: tuple[str, str, str] | None = None
    pvc_folder: Path | None = None
    app_id: str | None = None
    has_secret: bool = False

    @property
    def is_there(self) -> bool:
        """Whether the variables speak of Run:ai at all."""
        return self.base_url is not None


def find_runai(environ: Mapping[str, str]) -> RunaiFound:
    """Read VARIABLES; CUSTOM_MOUNT is ``name:path:claim``."""
    folder = environ.get("PVC_DIR")
    return RunaiFound(
        base_url=environ.get("BASE_URL") or None,
        project=environ.get("PROJECT_NAME") or None,
        pvc=read_mount(environ.get("CUSTOM_MOUNT", "")),
        pvc_folder=Path(folder) if folder else None,
        app_id=environ.get("APP_ID") or None,
        has_secret=bool(environ.get("APP_SECRET")),
    )


def read_mount(text: str) -> tuple[str, str, str] | None:
    """Name, path and claim in ``name:path:claim``; None where it is not of that form."""
    parts = tuple(part.strip() for part in text.split(":"))
    if len(parts) != 3 or not all(parts) or not parts[1].startswith("/"):
        return None
    return parts[0], parts[1], parts[2]
