# SPDX-License-Identifier: Apache-2.0
"""Errors of Run:ai's REST API: what an answer says is wrong, and the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmb.api import LlmbError, UnclearError

if TYPE_CHECKING:
    import httpx

URL = "check runai.base_url in cluster_config.yaml: https://HOST/api/v1"
_REASONS = ("message", "details", "error_description")  # the last is OAuth's, of /api/v2/token
_HINTS = {
    401: (
        "the access key has expired or was removed: create another in Run:ai, under Access keys or"
        " Applications"
    ),
    403: (
        "give the access key a role in the project that may submit workloads: in Run:ai, under"
        " Access, Access rules"
    ),
    429: "Run:ai has too many requests: try again later",
    503: "Run:ai is busy or being updated: try again later",
}
_OF_ONE = (403, 500)


class NotThereError(LlmbError):
    """The API has no resource at this address."""


class SignInError(LlmbError):
    """The API refuses the access key a token."""


class RefusedRequestError(LlmbError):
    """The API refuses the request."""


class BrokenGatewayError(UnclearError):
    """A gateway failed (502): the request has ended, and it is unknown whether it was carried
    out.
    """


def is_of_one(fault: LlmbError) -> bool:
    """Return True if an answer may concern its workload alone, so that others may be requested."""
    return isinstance(fault, RefusedRequestError) or fault.value in _OF_ONE


def unclear(fault: LlmbError) -> UnclearError:
    """``fault`` of a request that may have been obeyed all the same."""
    return UnclearError(
        fault.message, hint=fault.hint, code=fault.code, key=fault.key, value=fault.value
    )


def fault_of_answer(base_url: str, answer: httpx.Response) -> LlmbError:
    """The error for an answer, by its status and the API's reason."""
    status, reason = answer.status_code, _reason(answer)
    path = answer.request.url.path
    if status == 404 and not _data(answer):  # from a gateway or a web server
        return not_understood(base_url, f"nothing is at {path} (HTTP 404)")
    if status == 404:
        return NotThereError(
            f"Run:ai has nothing at {path}: {reason}", hint=URL, code="not-found", value=path
        )
    if issues := _issues(answer):
        hint = (
            "the project's policy requires other values: set these fields in runai.spec of"
            " cluster_config.yaml, null for a field that the policy sets; or ask for another policy"
        )
        message = f"Run:ai refused it: {'; '.join(issues)}"
        return RefusedRequestError(message, hint=hint, code="policy", value=tuple(issues))
    if 400 <= status < 500 and status not in _HINTS:
        return RefusedRequestError(
            f"Run:ai refused it: {reason} (HTTP {status})",
            hint="check the runai section of cluster_config.yaml",
            code="runai-refused",
            value=status,
        )
    problem, code = (
        ("does not allow it", "runai-denied")
        if status in (401, 403)
        else ("has a problem", "runai-failed")
    )
    return LlmbError(
        f"Run:ai {problem}: {reason} (HTTP {status})",
        hint=_HINTS.get(status, "try again later"),
        code=code,
        value=status,
    )


def fault_of_sign_in(base_url: str, key: str, answer: httpx.Response) -> LlmbError:
    """The error for an access key ``key`` that got no token."""
    status = answer.status_code
    if status < 300:
        return not_understood(base_url, "no access token at /token")
    if status == 404:
        return LlmbError(
            f"{base_url}/token does not exist (HTTP 404)",
            hint=URL,
            code="not-runai",
            key="runai.base_url",
        )
    if status == 429 or status >= 500:
        return fault_of_answer(base_url, answer)
    message = f"Run:ai does not sign in '{key}' with this secret: {_reason(answer)} (HTTP {status})"
    hint = "check APP_SECRET, and runai.app_id in cluster_config.yaml or APP_ID"
    return SignInError(message, hint=hint, code="sign-in-refused", key=key, value=status)


def not_understood(base_url: str, problem: str) -> LlmbError:
    """The error for an answer that is not the API's."""
    message = f"{base_url} does not answer as Run:ai's API: {problem}"
    return LlmbError(message, hint=URL, code="not-runai", key="runai.base_url")


def _reason(answer: httpx.Response) -> str:
    data = _data(answer)
    parts = [str(data[key]) for key in _REASONS if data.get(key)]
    return ": ".join(dict.fromkeys(parts)) or answer.reason_phrase or "no reason given"


def _issues(answer: httpx.Response) -> list[str]:
    listed = _data(answer).get("complianceIssues")
    entries = (
        [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    )
    return [
        ": ".join(str(entry[key]) for key in ("field", "details") if entry.get(key))
        for entry in entries
    ]


def _data(answer: httpx.Response) -> dict[str, Any]:
    try:
        data = answer.json()
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
