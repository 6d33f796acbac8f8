# SPDX-License-Identifier: Apache-2.0
"""The two addresses that give tokens: /api/v2/token, which speaks OAuth 2, and the older /api/v1/token."""

import json
from typing import Any
from urllib.parse import parse_qsl

from llmb.testing.runai.answers import Answer, error
from llmb.testing.runai.plane import ControlPlane

VERSIONS = {"/api/v1/token": 1, "/api/v2/token": 2}
_FORM = "application/x-www-form-urlencoded"


def sign_in(plane: ControlPlane, version: int, content: bytes, content_type: str) -> Answer:
    """A token, or why there is none. Raises ValueError for a body that is no JSON."""
    if version not in plane.token_versions:
        return error(404, "page not found")
    if version == 2:
        return _second(plane, content.decode(), content_type)
    return _first(plane, json.loads(content) if content else {})


def _second(plane: ControlPlane, content: str, content_type: str) -> Answer:
    """OAuth 2: a form, and errors by the names of RFC 6749."""
    form = dict(parse_qsl(content))
    if content_type.partition(";")[0] != _FORM:
        return _denied(400, "invalid_request", "the body is no form")
    if form.get("grant_type") != "client_credentials":
        return _denied(400, "unsupported_grant_type", "grant_type is not known")
    if odd := set(form) - {"grant_type", "client_id", "client_secret"}:
        return _denied(400, "invalid_request", f"{min(odd)} is not a parameter")
    if plane.keys.get(form.get("client_id", "")) != form.get("client_secret", ""):
        return _denied(401, "invalid_client", "invalid client credentials")
    data = {"access_token": plane.new_token(), "token_type": "Bearer", "expires_in": int(plane.token_seconds)}
    return Answer(status=200, data=data)


def _denied(status: int, name: str, why: str) -> Answer:
    return Answer(status=status, data={"error": name, "error_description": why})


def _first(plane: ControlPlane, content: dict[str, Any]) -> Answer:
    body = {name.lower(): value for name, value in content.items()}  # the API does not mind their case
    kinds = {
        "client_credentials": (plane.keys, "clientid", "clientsecret"),
        "app_token": (plane.applications, "appid", "appsecret"),
    }
    known, key, secret = kinds.get(str(body.get("granttype")), (None, "", ""))
    if known is None:
        return error(400, "grantType is not known")
    if set(body) - {"granttype", key, secret}:
        return error(400, "unknown field")
    if body.get(key) not in known or known[body[key]] != body.get(secret):
        return error(401, "invalid credentials")
    return Answer(status=200, data={"accessToken": plane.new_token(), "expiresIn": int(plane.token_seconds)})
