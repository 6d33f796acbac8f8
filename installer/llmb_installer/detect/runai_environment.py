# SPDX-License-Identifier: Apache-2.0
"""What the environment says of a Run:ai cluster, by the variables that its users set already."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmb.errors import UsageError
from llmb.text.yamlfile import Document
from llmb_installer.answers.layers import given, nested, value_at, with_layer

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


def with_variables(document: Document, environ: Mapping[str, str]) -> tuple[Document, list[str]]:
    """The answers of a Run:ai cluster with what VARIABLES say below them, and the variables that were used.

    Raises UsageError for a CUSTOM_MOUNT that is needed and cannot be read.
    """
    if value_at(document.data, "cluster_type") != "runai":
        return document, []
    used = []
    for key, variable, value in _answers(environ, needs_mount=not given(document.data, "runai.pvc")):
        if not given(document.data, key):
            document = with_layer(document, nested(key, value), variable)
            used.append(f"{key} from {variable}")
    return document, used


def _answers(environ: Mapping[str, str], *, needs_mount: bool) -> Iterator[tuple[str, str, Any]]:
    """Each answer that the variables give: its key, the variable, and the value."""
    found = find_runai(environ)
    if named := environ.get("LLMB_INSTALL"):
        yield "install", "LLMB_INSTALL", named
    elif found.pvc_folder is not None:
        yield "install", "PVC_DIR", str(found.pvc_folder / "llmb")
    texts = (("base_url", "BASE_URL", found.base_url), ("project", "PROJECT_NAME", found.project))
    for key, variable, value in (*texts, ("app_id", "APP_ID", found.app_id)):
        if value is not None:
            yield f"runai.{key}", variable, value
    if found.pvc is not None:
        yield "runai.pvc", "CUSTOM_MOUNT", dict(zip(("name", "path", "claim"), found.pvc, strict=True))
    elif needs_mount and environ.get("CUSTOM_MOUNT"):
        message = f"CUSTOM_MOUNT: '{environ['CUSTOM_MOUNT']}' is not of the form name:path:claim"
        raise UsageError(message, hint="as in work:/work:work-claim; the path is a full one")
