# SPDX-License-Identifier: Apache-2.0
"""What there is for Run:ai: address, project, volume, secret; its API is asked whether they are right."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from llmb.clusters.runai.token import NotSetError, find_credentials
from llmb.config import ClusterConfig
from llmb.config.runai import RunaiConfig, RunaiPvc
from llmb.errors import LlmbError
from llmb.system import secrets
from llmb.text.typed import KeyFaultError
from llmb_installer.detect.runai_environment import RunaiFound
from llmb_installer.doctor.finding import RUNAI, Finding, finding, wrong
from llmb_installer.fits import runai_fit

API, PROJECT, VOLUME, SEEN, SECRET = "Run:ai's API", "project", "volume", "volume, seen here", "APP_SECRET"
_CHECKS: dict[runai_fit.What, str] = {"API": API, "project": PROJECT, "secret": SECRET}
_BY_VARIABLES = {
    "runai.base_url in cluster_config.yaml": "BASE_URL",
    "runai.project in cluster_config.yaml names it": "PROJECT_NAME names it",
    ", and runai.app_id in cluster_config.yaml or APP_ID": " and APP_ID",
}
_SAYS = {API: "it answers", PROJECT: "it is there", SECRET: "it signs in"}
_NOT_SET = RunaiPvc(name="", path="/", claim="")
_NOBODY = RunaiConfig(base_url="https://-", project="", pvc=_NOT_SET)


def findings(found: RunaiFound, config: ClusterConfig | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at the configuration, else at the variables that would become its defaults, and ask the API."""
    own = config.runai if config is not None else None
    url, project = (own.base_url, own.project) if own is not None else (found.base_url, found.project)
    pvc = (own.pvc.name, own.pvc.path, own.pvc.claim) if own is not None else found.pvc
    fix = "set CUSTOM_MOUNT to name:path:claim"
    told = (
        finding(API, _absent(url, "BASE_URL is not set"), str(url), (RUNAI,), "BASE_URL=https://HOST/api/v1"),
        finding(PROJECT, _absent(project, "PROJECT_NAME is not set"), str(project), (RUNAI,), "set PROJECT_NAME"),
        finding(VOLUME, _absent(pvc, "CUSTOM_MOUNT is not set"), ":".join(pvc or ()), (RUNAI,), fix),
        _secret(own, found, environ),
    )
    yield from _asked(told, own, found, environ)
    here = own.pvc.here if own is not None else found.pvc_folder or (Path(pvc[1]) if pvc is not None else None)
    if here is not None:
        fault = None if here.is_dir() else f"{here} is not there"
        name = "runai.pvc.local in cluster_config.yaml" if own is not None else "PVC_DIR"
        fix = f"mount the volume on this machine, where logs are read; {name} is where it is mounted"
        yield finding(SEEN, fault, str(here), (RUNAI,), fix)


def _asked(
    told: tuple[Finding, ...], own: RunaiConfig | None, found: RunaiFound, environ: Mapping[str, str]
) -> Iterator[Finding]:
    """The findings with what the API says, where all is there that it takes to ask it."""
    lacking = [one.check for one in told if one.check in _SAYS and one.state != "ok"]
    if lacking:
        yield from (_unsure(one, f"not asked, for want of {', '.join(lacking)}") for one in told)
        return
    try:
        said = runai_fit.ask(own or _by_variables(found), environ)
    except KeyFaultError as error:
        said = "API", LlmbError(str(error), hint=error.hint)
    if said is None:
        for one in told:
            yield replace(one, found=f"{one.found}: {_SAYS[one.check]}") if one.check in _SAYS else one
        return
    check, fault = _CHECKS[said[0]], wrong(_CHECKS[said[0]], _worded(said[1], own), (RUNAI,))
    for one in told:
        is_open = check == API or one.check == PROJECT
        yield fault if one.check == check else _unsure(one, f"not known, see {check}") if is_open else one


def _unsure(one: Finding, why: str) -> Finding:
    """What is set and was not tried."""
    tried = one.check in _SAYS and one.state == "ok"
    return replace(one, state="warning", found=f"{one.found}: {why}") if tried else one


def _by_variables(found: RunaiFound) -> RunaiConfig:
    """What the variables amount to; the volume is not the API's affair. Raises KeyFaultError."""
    url, project = found.base_url or "", found.project or ""
    return RunaiConfig(base_url=url, project=project, pvc=_NOT_SET, app_id=found.app_id)


def _worded(error: LlmbError, own: RunaiConfig | None) -> LlmbError:
    """The error with a fix that names variables where there is no configuration."""
    hint = error.hint
    for text, variable in _BY_VARIABLES.items() if own is None and hint else ():
        hint = (hint or "").replace(text, variable)
    return LlmbError(error.message, hint=hint)


def _secret(own: RunaiConfig | None, found: RunaiFound, environ: Mapping[str, str]) -> Finding:
    try:
        key = find_credentials(own or replace(_NOBODY, app_id=found.app_id), environ)
    except NotSetError as error:
        fix = f"export {error.name}, or keep it in {secrets.SECRETS_FILE}"
        return finding(SECRET, error.message, "", (RUNAI,), fix)
    except LlmbError as error:
        return wrong(SECRET, error, (RUNAI,))
    return finding(SECRET, None, f"it is set, for '{key.id}'", (RUNAI,), None)


def _absent(value: object, told: str) -> str | None:
    return told if value is None else None
