# SPDX-License-Identifier: Apache-2.0
"""What there is for Run:ai: address, project, volume, secret. Its API is not asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llmb import secrets
from llmb.config import ClusterConfig
from llmb.errors import LlmbError
from llmb_installer.detect.folder import find_folder
from llmb_installer.detect.runai import RunaiFound
from llmb_installer.doctor.finding import RUNAI, Finding, finding, wrong

SECRET = "APP_SECRET"


def findings(found: RunaiFound, config: ClusterConfig | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at the configuration, else at the variables that would become its defaults."""
    own = config.runai if config is not None else None
    url, project = (own.base_url, own.project) if own is not None else (found.base_url, found.project)
    pvc = (own.pvc.name, own.pvc.path, own.pvc.claim) if own is not None else found.pvc
    yield finding(
        "Run:ai's API", _absent(url, "BASE_URL is not set"), str(url), (RUNAI,), "BASE_URL=https://HOST/api/v1"
    )
    yield finding("project", _absent(project, "PROJECT_NAME is not set"), str(project), (RUNAI,), "set PROJECT_NAME")
    cure = "set CUSTOM_MOUNT to name:path:claim"
    yield finding("volume", _absent(pvc, "CUSTOM_MOUNT is not set"), ":".join(pvc or ()), (RUNAI,), cure)
    yield _secret(environ)
    if found.pvc_folder is not None:
        seen = find_folder(found.pvc_folder)
        fault = None if seen.path.is_dir() else f"{seen.path} is not there"
        cure = "mount the volume on this machine: logs are read there"
        yield finding("volume, seen here", fault, str(seen.path), (RUNAI,), cure)


def _secret(environ: Mapping[str, str]) -> Finding:
    cure = f"export {SECRET}, or keep it in {secrets.SECRETS_FILE}"
    try:
        there = secrets.find([SECRET], environ)
    except LlmbError as error:
        return wrong(SECRET, error, (RUNAI,))
    return finding(SECRET, None if there else "it is not set", "it is set", (RUNAI,), cure)


def _absent(value: object, told: str) -> str | None:
    return told if value is None else None
