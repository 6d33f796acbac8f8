# SPDX-License-Identifier: Apache-2.0
"""The client of Run:ai's REST API: signs in, and repeats requests while the server is busy."""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from llmb.api import (
    LlmbError,
    TryAgainError,
    UnclearError,
    connection_fault,
    connection_may_recover,
    http_client,
    retry_after,
    with_retries,
)
from llmb_runai.rest_errors import (
    BrokenGatewayError,
    fault_of_answer,
    fault_of_sign_in,
    not_understood,
    unclear,
)
from llmb_runai.token import Credentials, Token, read_token

if TYPE_CHECKING:
    import httpx

PAGE = 500  # entries of a list in one answer, the most that the API gives
ATTEMPTS = 6  # at one request
_FIRST_ATTEMPTS = 3  # at a server that has never answered: the address may be wrong
_TOKENS = 3  # that are tried for one request
_CONNECT_SECONDS = 10.0
_SECONDS = 30.0  # for one answer
_HURRIED = 5.0  # seconds for either, where somebody waits to know whether it answers
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_BUSY = frozenset({429, 502, 503, 504})
_DENIED = frozenset({400, 401, 403})
_NETWORK = dict.fromkeys(
    ("dns", "refused", "other"),
    "check runai.base_url in cluster_config.yaml,"
    " the network and the proxy (HTTPS_PROXY, NO_PROXY)",
)


class RestClient:
    """The API at ``base_url``, for several threads at a time. ``first_pause``: seconds before a
    second attempt.

    ``is_hurried``: one attempt only, with a short time limit.
    """

    def __init__(
        self,
        base_url: str,
        credentials: Credentials,
        *,
        first_pause: float = _FIRST_PAUSE,
        is_hurried: bool = False,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._credentials = credentials
        self._first_pause = first_pause
        self._is_hurried = is_hurried
        self._token: Token | None = None
        ends_right = self.base_url.endswith("/v1")  # else version 2 has no address
        self._ways = tuple(way for way in credentials.requests() if ends_right or way.version == 1)
        self._has_answered = False
        self._lock = threading.Lock()

    def get(self, path: str, params: Mapping[str, str | int] | None = None) -> Any:
        """The data at ``path``. Raises LlmbError, NotThereError where there is none."""
        return self._ask("GET", path, params=params)

    def pages(
        self, path: str, key: str, params: Mapping[str, str | int] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Every entry of the list ``key`` at ``path``, page after page. Raises LlmbError."""
        offset, before = 0, None
        while True:
            data = self.get(path, {**(params or {}), "limit": PAGE, "offset": offset})
            entries = data.get(key) if isinstance(data, dict) else None
            if not isinstance(entries, list):
                raise not_understood(self.base_url, f"no list '{key}' at {path}")
            if entries and entries == before:
                raise not_understood(self.base_url, f"the same page of '{key}' again at {path}")
            yield from (entry for entry in entries if isinstance(entry, dict))
            offset, before = offset + len(entries), entries
            if not entries or data.get("next") in (None, "", 0):
                return

    def post(self, path: str) -> None:
        """Request a change that may be repeated. Raises LlmbError."""
        self._ask("POST", path)

    def create(self, path: str, content: Mapping[str, Any]) -> Any:
        """Create something, once.

        Raises UnclearError where the request may have arrived and there is no valid answer,
        BrokenGatewayError among them; LlmbError for a refusal.
        """
        return self._ask("POST", path, json=content, is_once=True)

    def _ask(self, method: str, path: str, *, is_once: bool = False, **content: Any) -> Any:
        """The data of the answer; ``content``: of the request, as httpx names it. Raises
        LlmbError.
        """
        token = self._signed_in()
        for attempts in reversed(range(_TOKENS)):
            headers = {"Authorization": f"Bearer {token.text}"}
            answer = self._send(
                method, f"{self.base_url}{path}", is_once=is_once, headers=headers, **content
            )
            if answer.status_code != 401 or not attempts:
                break
            token = self._signed_in(instead_of=token)  # it was revoked, or the clocks differ
        if answer.status_code < 400:
            return self._data(answer, is_once=is_once)
        fault = fault_of_answer(self.base_url, answer)
        raise unclear(fault) if is_once and answer.status_code >= 500 else fault

    def _signed_in(self, instead_of: Token | None = None) -> Token:
        """A valid token, another one than ``instead_of``. Raises LlmbError."""
        with self._lock:
            if self._token is None or self._token is instead_of or time.time() >= self._token.until:
                self._token = self._sign_in()
            return self._token

    def _sign_in(self) -> Token:
        """A new token, by the first way that this control plane supports. Raises SignInError,
        LlmbError.
        """
        refusal: httpx.Response | None = None
        for way in self._ways:
            # Version 2 takes a form instead of JSON.
            if way.version == 2:
                answer = self._send(
                    "POST", f"{self.base_url.removesuffix('/v1')}/v2/token", data=way.content
                )
            else:
                answer = self._send("POST", f"{self.base_url}/token", json=way.content)
            if (token := _token_of(answer)) is not None:
                self._ways = (
                    way,
                    *(alternative for alternative in self._ways if alternative is not way),
                )
                return token
            # another way would fail as well
            if answer.status_code == 429 or answer.status_code >= 500:
                raise fault_of_sign_in(self.base_url, self._credentials.id, answer)
            # a missing address explains nothing
            if refusal is None or refusal.status_code not in _DENIED:
                refusal = answer
        assert refusal is not None
        raise fault_of_sign_in(self.base_url, self._credentials.id, refusal)

    def _send(
        self, method: str, url: str, *, is_once: bool = False, **content: Any
    ) -> httpx.Response:
        """The answer; the request is repeated while the server is busy or cannot be reached.

        A request that ``is_once`` is repeated only where it has certainly not arrived.
        """
        return with_retries(
            lambda: self._attempt(is_once, method, url, **content),
            lambda seconds, _: time.sleep(seconds),
            attempts=1 if self._is_hurried else ATTEMPTS,
            first_pause=self._first_pause,
        )

    def _attempt(self, is_once: bool, method: str, url: str, **content: Any) -> httpx.Response:
        """One attempt at a request. Raises TryAgainError where another one may succeed."""
        import httpx

        try:
            answer = self._http.request(method, url, **content)
        except httpx.TransportError as error:
            name = f"Run:ai at {self.base_url}"
            fault = connection_fault(error, httpx.URL(self.base_url), name=name, hints=_NETWORK)
            # it may have arrived
            if is_once and not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                raise unclear(fault) from error
            if not connection_may_recover(error, is_known=True):
                raise fault from error
            raise TryAgainError(
                fault, attempts=ATTEMPTS if self._has_answered else _FIRST_ATTEMPTS
            ) from error
        except httpx.DecodingError as error:
            fault = not_understood(self.base_url, f"what it cannot decode ({error})")
            raise (unclear(fault) if is_once else fault) from error
        except httpx.InvalidURL as error:
            message = f"{self.base_url}: {error}"
            hint = "correct runai.base_url in cluster_config.yaml"
            raise LlmbError(
                message, hint=hint, code="address-invalid", key="runai.base_url"
            ) from error
        self._has_answered = True
        if answer.status_code not in _BUSY:
            return answer
        fault = fault_of_answer(self.base_url, answer)
        # from a gateway: the request may have been carried out
        if is_once and answer.status_code in (502, 504):
            kind = BrokenGatewayError if answer.status_code == 502 else UnclearError
            raise kind(fault.message, hint=fault.hint)
        raise TryAgainError(
            unclear(fault) if is_once and answer.status_code >= 500 else fault,
            self._asked_pause(answer),
        )

    def _asked_pause(self, answer: httpx.Response) -> float | None:
        """The seconds that Retry-After asks to wait, within limits, and spread; None where it asks
        for nothing.
        """
        seconds = retry_after(answer.headers.get("Retry-After"))
        if seconds is None:
            return None
        return max(self._first_pause, min(seconds, _LONGEST_PAUSE)) * random.uniform(1.0, 1.3)

    @cached_property
    def _http(self) -> httpx.Client:
        client = http_client(
            headers={"User-Agent": "llmb-run", "Accept": "application/json"},
            environ=os.environ,
            read_seconds=_HURRIED if self._is_hurried else _SECONDS,
            connect_seconds=_HURRIED if self._is_hurried else _CONNECT_SECONDS,
        )
        weakref.finalize(self, client.close)  # with whoever holds this client
        return client

    def _data(self, answer: httpx.Response, *, is_once: bool = False) -> Any:
        if not answer.content:
            return {}
        try:
            return answer.json()
        except (ValueError, RecursionError) as error:
            fault = not_understood(self.base_url, "no JSON")
            raise (unclear(fault) if is_once else fault) from error


def _token_of(answer: httpx.Response) -> Token | None:
    """The token in an answer; None where there is none, as in a web server's error page."""
    try:
        data = answer.json() if answer.status_code < 300 else None
    except (ValueError, RecursionError):
        return None
    return read_token(data, time.time()) if isinstance(data, dict) else None
