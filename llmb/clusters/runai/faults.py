# SPDX-License-Identifier: Apache-2.0
"""What Run:ai's API and the way to it say against a request, in words and with the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmb.clusters.base import UnclearError
from llmb.errors import LlmbError
from llmb.system import http

if TYPE_CHECKING:
    import httpx

URL = "check runai.base_url in cluster_config.yaml: https://HOST/api/v1"
_NETWORK = dict.fromkeys(("dns", "refused", "other"), f"check runai.base_url in cluster_config.yaml, {http.NETWORK}")
_SAYING = ("message", "details", "error_description")  # the last is OAuth's, of /api/v2/token
_HINTS = {
    401: "the access key has expired or was removed: make another in Run:ai, under Access keys or Applications",
    403: "give the access key a role in the project that may submit workloads: Run:ai, under Access, Access rules",
    429: "others ask much of it: try again later",
    503: "Run:ai is busy or being updated: try again later",
}


class NotThereError(LlmbError):
    """The API has nothing of that name."""


class SignInError(LlmbError):
    """The API gives the access key no token."""


class RefusedError(LlmbError):
    """The API understood the request and does not obey it."""


def unclear(fault: LlmbError) -> UnclearError:
    """``fault`` of a request that may have been obeyed all the same."""
    return UnclearError(fault.message, hint=fault.hint, code=fault.code, key=fault.key, value=fault.value)


def of_answer(base_url: str, answer: httpx.Response) -> LlmbError:
    """The error that an answer is, by its status and what the API says in it."""
    status, said = answer.status_code, _said(answer)
    path = answer.request.url.path
    if status == 404 and not _data(answer):  # a gateway's, or a web server's
        return not_understood(base_url, f"nothing is at {path} (HTTP 404)")
    if status == 404:
        return NotThereError(f"Run:ai has nothing at {path}: {said}", hint=URL)
    if issues := _issues(answer):
        hint = (
            "the project's policy: set these fields in runai.spec of cluster_config.yaml, null for one that it fixes; "
            "or ask for another policy"
        )
        return RefusedError(f"Run:ai refused it: {'; '.join(issues)}", hint=hint)
    if 400 <= status < 500 and status not in _HINTS:
        return RefusedError(
            f"Run:ai refused it: {said} (HTTP {status})", hint="check the runai section of the configuration"
        )
    what = "does not allow it" if status in (401, 403) else "has trouble of its own"
    return LlmbError(f"Run:ai {what}: {said} (HTTP {status})", hint=_HINTS.get(status, "try again later"))


def of_sign_in(base_url: str, key: str, answer: httpx.Response) -> LlmbError:
    """The error that no token was given to the access key ``key``."""
    status = answer.status_code
    if status < 300:
        return not_understood(base_url, "no access token at /token")
    if status == 404:
        return LlmbError(f"{base_url}/token is not there (HTTP 404)", hint=URL)
    if status == 429 or status >= 500:
        return of_answer(base_url, answer)
    message = f"Run:ai does not sign in '{key}' with this secret: {_said(answer)} (HTTP {status})"
    return SignInError(message, hint="check APP_SECRET, and runai.app_id in cluster_config.yaml or APP_ID")


def of_transport(base_url: str, error: httpx.TransportError) -> LlmbError:
    """The error for a request without a complete answer."""
    import httpx

    return http.unreachable(error, httpx.URL(base_url), name=f"Run:ai at {base_url}", hints=_NETWORK)


def not_understood(base_url: str, what: str) -> LlmbError:
    """The error that something else than the API answers."""
    return LlmbError(f"{base_url} does not answer as Run:ai's API: {what}", hint=URL)


def _said(answer: httpx.Response) -> str:
    data = _data(answer)
    parts = [str(data[key]) for key in _SAYING if data.get(key)]
    return ": ".join(dict.fromkeys(parts)) or answer.reason_phrase or "no reason given"


def _issues(answer: httpx.Response) -> list[str]:
    listed = _data(answer).get("complianceIssues")
    found = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [": ".join(str(one[key]) for key in ("field", "details") if one.get(key)) for one in found]


def _data(answer: httpx.Response) -> dict[str, Any]:
    try:
        data = answer.json()
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
