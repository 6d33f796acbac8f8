# SPDX-License-Identifier: Apache-2.0
"""Signs in to a registry that asks for it: with Basic, or with a token of its token server.

Credentials are looked up and sent only when a host asks for them, and only to that host.
"""

import base64
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from sqshpull.credentials import (
    NGC,
    NGC_KEY,
    RegistryCredentials,
    find_credentials,
    searched_places,
    variables,
)
from sqshpull.errors import ALLOW_HTTP, PullError
from sqshpull.http import HttpAnswer
from sqshpull.manifests import parse_json
from sqshpull.settings import PullUser

Ask = Callable[[str, str, Mapping[str, str], Mapping[str, str]], HttpAnswer]

_SCHEME = re.compile(r"(?:^|,)\s*([A-Za-z]+)(?:\s+(?=[\w-]+\s*=)|\s*$)")
_PARAMETER = re.compile(r'(?<![\w-])([\w-]{1,64})\s{0,9}=\s{0,9}(?:"((?:\\.|[^"\\])*)"|([^\s,"]*))')
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')  # masked while schemes are searched
# characters that are read of a WWW-Authenticate header; real ones have a tenth of that
_LONGEST = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """One way to sign in: ``basic``, or ``bearer`` with a server for tokens."""

    scheme: str
    realm: str = ""
    service: str = ""
    scope: str = ""


def read_challenges(headers: Sequence[str]) -> list[Challenge]:
    """Return the challenges of all WWW-Authenticate headers of an answer, in order."""
    challenges = []
    for header in (header[:_LONGEST] for header in headers):
        masked = _QUOTED.sub(lambda quoted: '"' + "_" * (len(quoted[0]) - 2) + '"', header)
        starts = [*_SCHEME.finditer(masked)]
        ends = [*(start.start() for start in starts[1:]), len(header)][: len(starts)]
        for start, end in zip(starts, ends, strict=True):
            words = {
                m[1].lower(): m[2] if m[2] is not None else m[3]
                for m in _PARAMETER.finditer(header[start.end() : end])
            }
            parameters = {key: words[key] for key in ("realm", "service", "scope") if key in words}
            challenges.append(Challenge(scheme=start[1].lower(), **parameters))
    return challenges


class SignIn:
    """The credentials and tokens for reading from ``registry``. Several threads may share it.

    ``root`` returns the address of its API, ``https://HOST/v2/``. ``ask(method, url, parameters,
    headers)`` returns the answer of the registry or of a token server. ``allows_plain`` returns
    True if a host may get secrets without TLS.
    """

    def __init__(
        self,
        registry: str,
        user: PullUser,
        root: Callable[[], str],
        ask: Ask,
        allows_plain: Callable[[str], bool],
    ) -> None:
        self._registry, self._user = registry, user
        self._root, self._ask, self._allows_plain = root, ask, allows_plain
        self._tokens: dict[str, str] = {}
        self._basic: str | None = None
        self._credentials: RegistryCredentials | None = None
        self._is_searched = False
        self._refusal: PullError | None = None
        self._renewing = threading.Lock()

    def header(self, repository: str) -> str | None:
        """Return the Authorization header for ``repository``, None until the registry asks for it.

        Raises PullError after the credentials were rejected: repeated wrong passwords often lock an
        account.
        """
        if self._refusal is not None:
            raise self._refusal
        return self._tokens.get(repository) or self._basic

    def renew(self, repository: str, challenges: Sequence[str], rejected: str | None) -> str:
        """Return the header that answers the WWW-Authenticate headers ``challenges``.

        ``rejected`` was sent before, if any. One thread at a time renews an expired token, for all.
        Raises PullError.
        """
        with self._renewing:
            header = self.header(repository)
            if header is None or header == rejected:
                header = self._sign_in(repository, read_challenges(challenges))
            return header

    def denied(self, repository: str, status: int) -> PullError:
        """Return the error for a registry that denies access with ``status`` after ``renew``."""
        credentials = self._credentials
        if self.header(repository) is None:
            message = (
                f"{self._registry} denies access to {repository} without asking for credentials"
                f" (HTTP {status})"
            )
            hint = "check the name, and any proxy in front of the registry"
            return self._fault("credentials-refused", message, hint)
        if credentials is None:
            message = f"{self._registry}/{repository} does not exist, or is not public"
            return self._fault("credentials-missing", message, f"check the name; {self._fix()}")
        message = (
            f"{self._registry}/{repository} does not exist, or the user {credentials} may not read"
            " it"
        )
        return self._fault(
            "credentials-refused", message, "check the name, and the permissions of this user"
        )

    def _fault(self, code: str, message: str, hint: str) -> PullError:
        return PullError(message, hint=hint, code=code, key=self._registry)

    def _sign_in(self, repository: str, challenges: list[Challenge]) -> str:
        for challenge in challenges:
            if challenge.scheme == "bearer" and challenge.realm:
                self._tokens[repository] = header = f"Bearer {self._token(repository, challenge)}"
                return header
            if challenge.scheme == "basic":
                self._basic = self._tested_basic(repository)
                return self._basic
        schemes = ", ".join(challenge.scheme for challenge in challenges)
        message = f"{self._registry} supports no known way to sign in, only: {schemes}"
        if not schemes:
            message = (
                f"{self._registry} denies access to {repository} (HTTP 401) without saying how to"
                " sign in"
            )
        hint = "check the registry's name, and any proxy in front of it"
        raise self._fault("registry-unusable", message, hint)

    def _tested_basic(self, repository: str) -> str:
        """Return the Basic header, tested once at an address where only the password matters."""
        credentials = self._find(None)
        if credentials is None:
            raise self._missing(repository)
        header = _basic(credentials)
        if self._ask("GET", self._root(), {}, {"Authorization": header}).status == 401:
            raise self._rejected(credentials)
        return header

    def _token(self, repository: str, challenge: Challenge) -> str:
        """Return a new token: with an identity token by OAuth2, else as docker's registries do."""
        server = self._server_of(challenge)
        credentials = self._find(server.hostname)
        if server.scheme != "https" and not (
            server.scheme == "http" and self._allows_plain(server.netloc)
        ):
            message = (
                f"{self._registry} asks to send credentials to {challenge.realm}, which has no TLS"
            )
            raise self._fault(
                "registry-unusable",
                message,
                f"if you trust that host, {ALLOW_HTTP}",
            )
        scope = challenge.scope or f"repository:{repository}:pull"
        parameters = {
            **({"service": challenge.service} if challenge.service else {}),
            "scope": scope,
        }
        if credentials is not None and credentials.is_identity_token:
            form = {
                "grant_type": "refresh_token",
                "client_id": "sqshpull",
                "refresh_token": credentials.secret,
            }
            answer = self._ask("POST", challenge.realm, parameters | form, {})
        else:
            headers = {"Authorization": _basic(credentials)} if credentials is not None else {}
            answer = self._ask("GET", challenge.realm, parameters, headers)
        return self._read_token(answer, repository, credentials)

    def _server_of(self, challenge: Challenge) -> SplitResult:
        import httpx

        try:
            httpx.URL(challenge.realm)
            return urlsplit(challenge.realm)
        except (httpx.InvalidURL, ValueError) as error:
            message = f"{self._registry} names a token server that has no address: {error}"
            hint = "check the registry's name"
            raise self._fault("registry-unusable", message, hint) from error

    def _read_token(
        self, answer: HttpAnswer, repository: str, credentials: RegistryCredentials | None
    ) -> str:
        if answer.status in (400, 401, 403):
            raise (
                self._rejected(credentials)
                if credentials is not None
                else self._missing(repository)
            )
        if answer.status != 200:
            message = (
                f"{answer.host}, the token server of {self._registry}, answers HTTP {answer.status}"
            )
            raise self._fault("host-busy", message, "try again later")
        data = parse_json(answer.body, f"the token of {answer.host}")
        token = data.get("token") or data.get("access_token")
        if not isinstance(token, str):
            message = f"{answer.host}, the token server of {self._registry}, sends no token"
            raise self._fault("registry-unusable", message, "check the registry's name")
        return token

    def _find(self, token_host: str | None) -> RegistryCredentials | None:
        if not self._is_searched:
            self._credentials = find_credentials(self._registry, self._user, token_host=token_host)
            self._is_searched = True
        return self._credentials

    def _rejected(self, credentials: RegistryCredentials) -> PullError:
        message = f"{self._registry} rejects the credentials of {credentials}"
        self._refusal = self._fault(
            "credentials-refused", message, f"they may have expired; {self._log_in()}"
        )
        return self._refusal

    def _missing(self, repository: str) -> PullError:
        message = f"{self._registry} requires credentials for {repository}, and none were found"
        return self._fault("credentials-missing", message, self._fix())

    def _fix(self) -> str:
        return f"{self._log_in()}; searched {searched_places(self._registry, self._user)}"

    def _log_in(self) -> str:
        if self._registry == NGC:
            return f"set {NGC_KEY} to an NGC key (https://org.ngc.nvidia.com/setup/api-keys)"
        return f"docker login {self._registry}, or set {' and '.join(variables(self._registry))}"


def _basic(credentials: RegistryCredentials) -> str:
    return f"Basic {base64.b64encode(f'{credentials.user}:{credentials.secret}'.encode()).decode()}"
