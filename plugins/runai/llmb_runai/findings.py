# SPDX-License-Identifier: Apache-2.0
"""Compares a section with its Run:ai: notes for an installation, findings for the doctor."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from llmb.api import SECRETS_FILE, Finding, KeyFaultError, LlmbError
from llmb_runai import request, rest, rest_errors, token, workloads
from llmb_runai.runai_config import RunaiConfig, RunaiPvc
from llmb_runai.token import NotSetError, find_credentials

RunaiPart = Literal["API", "secret", "project"]
_ANSWERS: Mapping[RunaiPart, str] = {
    "API": "runai.base_url in the answers",
    "secret": "APP_SECRET, and runai.app_id in the answers or APP_ID",
    "project": "runai.project in the answers",
}
API, PROJECT, VOLUME, MOUNT, SECRET = (
    "Run:ai's API",
    "project",
    "volume",
    "volume mounted here",
    "APP_SECRET",
)
_CHECKS: Mapping[RunaiPart, str] = {"API": API, "project": PROJECT, "secret": SECRET}
_VARIABLES: Mapping[RunaiPart, str] = {
    "API": "BASE_URL",
    "project": "PROJECT_NAME",
    "secret": "APP_SECRET and APP_ID",
}
_CONFIRMED = {API: "it answers", PROJECT: "it exists", SECRET: "it signs in"}
_NO_VOLUME = RunaiPvc(name="none", path="/", claim="none")  # the API does not need it


def notes(section: RunaiConfig | None, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what llmb-run would refuse now. It may change, so it stops no installation."""
    if section is None:
        return
    if (refused := ask_runai(section, environ)) is not None:
        part, error = refused
        unset = (
            f"export {error.name}, or add it to {SECRETS_FILE}"
            if isinstance(error, NotSetError)
            else None
        )
        fix = unset or runai_fix(part, _ANSWERS)
        yield f"jobs cannot be submitted to Run:ai now: {error.message} ({fix})"
    pvc = section.pvc  # it may be mounted later
    if not pvc.mount.is_dir():
        yield (
            f"the volume {pvc.name} is not mounted here: there is no folder {pvc.mount}"
            " (runai.pvc.local sets another)"
        )


def folder_fault(section: RunaiConfig | None, folder: Path) -> str | None:
    """Return why pods cannot use ``folder``, or None if it is on the volume."""
    if section is None or request.is_on(section.pvc, folder):
        return None
    return (
        f"{folder} is not on the volume {section.pvc.mount}: pods cannot see it, so llmb-run would"
        " refuse jobs"
    )


def ask_runai(runai: RunaiConfig, environ: Mapping[str, str]) -> tuple[RunaiPart, LlmbError] | None:
    """The error of Run:ai's API and the part it is about, or None where the access key signs in and
    has the project.

    Never waits long.
    """
    try:
        credentials = token.find_credentials(runai, environ)
    except LlmbError as error:
        return "secret", error
    try:
        _ = workloads.Api(
            client=rest.RestClient(runai.base_url, credentials, is_hurried=True), runai=runai
        ).project
    except rest_errors.SignInError as error:
        return "secret", error
    except workloads.ProjectError as error:
        return "project", error
    except LlmbError as error:
        return "API", error
    return None


def runai_fix(part: RunaiPart, settings: Mapping[RunaiPart, str]) -> str:
    """The fix of an error about ``part``, where ``settings`` name what sets each part."""
    details = {
        "API": (
            ", the network, the proxy (HTTPS_PROXY, NO_PROXY) and the certificates (SSL_CERT_FILE)"
        ),
        "secret": "",
        "project": (
            ", and runai.cluster where several clusters have it; or ask for access to the project"
        ),
    }
    return f"check {settings[part]}{details[part]}"


def examine(section: RunaiConfig | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Examine the section, else the variables of its questions, and ask Run:ai's API."""
    url, project = environ.get("BASE_URL") or None, environ.get("PROJECT_NAME") or None
    pvc = read_mount(environ.get("CUSTOM_MOUNT", ""))
    if section is not None:
        url, project, pvc = (
            section.base_url,
            section.project,
            (section.pvc.name, section.pvc.path, section.pvc.claim),
        )
    settings = (
        (API, "BASE_URL", url, "export BASE_URL=https://HOST/api/v1"),
        (PROJECT, "PROJECT_NAME", project, "export PROJECT_NAME=PROJECT"),
        (
            VOLUME,
            "CUSTOM_MOUNT",
            ":".join(pvc) if pvc is not None else None,
            "export CUSTOM_MOUNT=NAME:PATH:CLAIM",
        ),
    )
    set_up = [
        _finding(check, f"{name} is not set" if value is None else None, str(value), fix)
        for check, name, value, fix in settings
    ]
    yield from _with_answer([*set_up, _secret(section, environ)], section, environ)
    folder = environ.get("PVC_DIR") or (pvc[1] if pvc is not None else None)
    folder_here = section.pvc.mount if section is not None else Path(folder) if folder else None
    if folder_here is not None:
        fault = None if folder_here.is_dir() else f"there is no folder {folder_here}"
        name = "runai.pvc.local in cluster_config.yaml" if section is not None else "PVC_DIR"
        fix = (
            f"mount the volume on this machine, which reads logs from it; {name} is its folder here"
        )
        yield _finding(MOUNT, fault, str(folder_here), fix)


def _with_answer(
    set_up: list[Finding], section: RunaiConfig | None, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """The findings with the answer of the API, which is asked once everything for it is set."""
    lacking = [
        setting.check for setting in set_up if setting.check in _CONFIRMED and setting.state != "ok"
    ]
    if lacking:
        yield from (
            _unconfirmed(setting, f"not checked without {', '.join(lacking)}") for setting in set_up
        )
        return
    try:
        url, project = environ.get("BASE_URL", ""), environ.get("PROJECT_NAME", "")
        refused = ask_runai(
            section or RunaiConfig(base_url=url, project=project, pvc=_NO_VOLUME), environ
        )
    except KeyFaultError as error:
        part, fault = "API", _invalid(API, LlmbError(str(error), hint=error.hint))
    else:
        if refused is None:
            for setting in set_up:
                yield (
                    replace(setting, found=f"{setting.found}: {_CONFIRMED[setting.check]}")
                    if setting.check in _CONFIRMED
                    else setting
                )
            return
        part, reason = refused
        fault = _invalid(_CHECKS[part], reason)
        if section is None:  # the error's section hint is about cluster_config.yaml
            fault = replace(fault, fix=runai_fix(part, _VARIABLES))
    for setting in set_up:
        is_unknown = part == "API" or setting.check == PROJECT
        unconfirmed = (
            _unconfirmed(setting, f"unknown, see {fault.check}") if is_unknown else setting
        )
        yield fault if setting.check == fault.check else unconfirmed


def _finding(check: str, fault: str | None, value: str, fix: str | None) -> Finding:
    """Return ``ok`` with ``value`` without a ``fault``, else ``missing`` with its ``fix``."""
    if fault is None:
        return Finding(check=check, state="ok", found=value)
    return Finding(check=check, state="missing", found=fault, fix=fix)


def _invalid(check: str, error: LlmbError) -> Finding:
    return Finding(check=check, state="wrong", found=error.message, fix=error.hint)


def _unconfirmed(setting: Finding, reason: str) -> Finding:
    """A warning for a setting that the API has not confirmed."""
    is_set = setting.check in _CONFIRMED and setting.state == "ok"
    return (
        replace(setting, state="warning", found=f"{setting.found}: {reason}") if is_set else setting
    )


def _secret(section: RunaiConfig | None, environ: Mapping[str, str]) -> Finding:
    try:
        key = find_credentials(
            section or RunaiConfig(base_url="https://-", project="", pvc=_NO_VOLUME), environ
        )
    except NotSetError as error:
        fix = f"export {error.name}, or add it to {SECRETS_FILE}"
        return _finding(SECRET, error.message, "", fix)
    except LlmbError as error:
        return _invalid(SECRET, error)
    return _finding(SECRET, None, f"it is set, for '{key.id}'", None)


def read_mount(text: str) -> tuple[str, str, str] | None:
    """Return name, path and claim of ``name:path:claim``, or None for another form."""
    parts = tuple(part.strip() for part in text.split(":"))
    if len(parts) != 3 or not all(parts) or not parts[1].startswith("/"):
        return None
    return parts[0], parts[1], parts[2]
