# SPDX-License-Identifier: Apache-2.0
"""The questions about a Run:ai cluster: its API, the project, the volume."""

from typing import Any

from llmb_installer.detect.runai_environment import read_mount
from llmb_installer.wizard.question import Question, View


def _is_runai(view: View) -> bool:
    return view.kind == "runai"


def _check_url(_: View, value: Any) -> str | None:
    ok = str(value).startswith("https://") and len(str(value)) > len("https://")
    return None if ok else "the address of the control plane's API: https://HOST/api/v1"


def _check_mount(_: View, value: Any) -> str | None:
    return None if read_mount(str(value)) else "name:path:claim, as in work:/work:work-claim; the path is a full one"


def _mount_layer(_: View, value: Any) -> dict[str, Any]:
    found = read_mount(str(value))
    return {"runai": {"pvc": dict(zip(("name", "path", "claim"), found or (), strict=False))}}


def _mount_value(answer: Any) -> str:
    return ":".join(str(answer.get(key, "")) for key in ("name", "path", "claim")) if isinstance(answer, dict) else ""


BASE_URL = Question(
    key="runai.base_url",
    label="Run:ai API",
    text="Address of Run:ai's API (https://HOST/api/v1):",
    kind="text",
    default=lambda view: view.detected.runai.base_url or "",
    applies=_is_runai,
    check=_check_url,
)
PROJECT = Question(
    key="runai.project",
    label="project",
    text="Project of Run:ai:",
    kind="text",
    applies=_is_runai,
    default=lambda view: view.detected.runai.project or "",
    check=lambda _, value: None if str(value).strip() else "the project's name",
)
PVC = Question(
    key="runai.pvc",
    label="volume",
    text="Persistent volume, as name:path:claim:",
    kind="text",
    applies=_is_runai,
    default=lambda view: ":".join(view.detected.runai.pvc or ()),
    check=_check_mount,
    layer=_mount_layer,
    value=_mount_value,
)
APP_ID = Question(
    key="runai.app_id",
    label="application",
    text="Id of the client or application that signs in:",
    kind="text",
    default=lambda view: view.detected.runai.app_id or "",
    applies=_is_runai,
    layer=lambda _, value: {"runai": {"app_id": str(value).strip() or None}},
)
