# SPDX-License-Identifier: Apache-2.0
"""Signs in to a registry that asks for it: with Basic, or with a token of its token server for each repository.

Credentials are looked up and sent only when a host asks for them, and only to that host.
"""

import base64
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from llmb.errors import LlmbError
from llmb.system.http import Answer
from llmb_installer.registry.credentials import NGC, NGC_KEY, Credentials, find_credentials, searched_places, variables
from llmb_installer.registry.manifests import parse_json

Ask = Callable[[str, str, Mapping[str, str], Mapping[str, str]], Answer]

_SCHEME = re.compile(r"(?:^|,)\s*([A-Za-z]+)(?:\s+(?=[\w-]+\s*=)|\s*$)")
_PARAMETER = re.compile(r'(?<![\w-])([\w-]{1,64})\s{0,9}=\s{0,9}(?:"((?:\\.|[^"\\])*)"|([^\s,"]*))')
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')  # masked while schemes are searched
_LONGEST = 8192  # characters that are read of a WWW-Authenticate header; real ones have a tenth of that


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """One way to sign in that a registry offers: ``basic`` or ``bearer``, the latter with the server for tokens."""

    scheme: str
    realm: str = ""
    service: str = ""
    scope: str = ""


def read_challenges(headers: Sequence[str]) -> list[Challenge]:
    """The challenges of all WWW-Authenticate headers of an answer, in order."""
    found = []
    for header in (header[:_LONGEST] for header in headers):
        masked = _QUOTED.sub(lambda quoted: '"' + "_" * (len(quoted[0]) - 2) + '"', header)
        starts = [*_SCHEME.finditer(masked)]
        ends = [*(start.start() for start in starts[1:]), len(header)][: len(starts)]
        for start, end in zip(starts, ends, strict=True):
            words = {
                m[1].lower(): m[2] if m[2] is not None else m[3] for m in _PARAMETER.finditer(header[start.end() : end])
            }
            known = {key: words[key] for key in ("realm", "service", "scope") if key in words}
            found.append(Challenge(scheme=start[1].lower(), **known))
    return found


class Access:
    """The credentials and tokens for reading from ``registry``; several threads may share it.

    ``root`` gives the address of its API, ``https://HOST/v2/``. ``ask(method, url, parameters, headers)`` gives the
    answer of the registry or of a token server; ``allows_plain`` says whether a host may get secrets without TLS.
    """

    def __init__(
        self,
        registry: str,
        environ: Mapping[str, str],
        home: Path,
        root: Callable[[], str],
        ask: Ask,
        allows_plain: Callable[[str], bool],
    ) -> None:
        self._registry, self._environ, self._home = registry, environ, home
        self._root, self._ask, self._allows_plain = root, ask, allows_plain
        self._tokens: dict[str, str] = {}
        self._basic: str | None = None
        self._credentials: Credentials | None = None
        self._is_searched = False
        self._refusal: LlmbError | None = None
        self._renewing = threading.Lock()

    def header(self, repository: str) -> str | None:
        """The Authorization header for ``repository``; None until the registry has asked for one.

        Raises LlmbError after the credentials were rejected: repeated wrong passwords often lock an account.
        """
        if self._refusal is not None:
            raise self._refusal
        return self._tokens.get(repository) or self._basic

    def renew(self, repository: str, challenges: Sequence[str], rejected: str | None) -> str:
        """The header that answers the WWW-Authenticate headers ``challenges``; ``rejected`` was sent before, if any.

        One thread at a time renews an expired token, for all. Raises LlmbError.
        """
        with self._renewing:
            present = self.header(repository)
            if present is None or present == rejected:
                present = self._sign_in(repository, read_challenges(challenges))
            return present

    def denied(self, repository: str, status: int) -> LlmbError:
        """The error for a registry that denies access, with the HTTP ``status``, to what ``renew`` gave."""
        found = self._credentials
        if self.header(repository) is None:
            message = f"{self._registry} denies access to {repository} without asking for credentials (HTTP {status})"
            hint = "check the name, and any proxy in front of the registry"
            return self._fault("credentials-refused", message, hint)
        if found is None:
            message = f"{self._registry}/{repository} does not exist, or is not public"
            return self._fault("credentials-missing", message, f"check the name; {self._fix()}")
        message = f"{self._registry}/{repository} does not exist, or the user {found} may not read it"
        return self._fault("credentials-refused", message, "check the name, and the permissions of this user")

    def _fault(self, code: str, message: str, hint: str) -> LlmbError:
        return LlmbError(message, hint=hint, code=code, key=self._registry)

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
            message = f"{self._registry} denies access to {repository} (HTTP 401) without saying how to sign in"
        hint = "check the registry's name, and any proxy in front of it"
        raise self._fault("registry-unusable", message, hint)

    def _tested_basic(self, repository: str) -> str:
        """The Basic header, tested once at an address where only the password matters."""
        found = self._find(None)
        if found is None:
            raise self._missing(repository)
        header = _basic(found)
        if self._ask("GET", self._root(), {}, {"Authorization": header}).status == 401:
            raise self._rejected(found)
        return header

    def _token(self, repository: str, challenge: Challenge) -> str:
        """A new token: with an identity token by OAuth2, else as docker's registries describe it."""
        server = urlsplit(challenge.realm)
        found = self._find(server.hostname)
        if server.scheme != "https" and not (server.scheme == "http" and self._allows_plain(server.netloc)):
            message = f"{self._registry} asks to send credentials to {challenge.realm}, which has no TLS"
            raise self._fault(
                "registry-unusable", message, "if you trust that host, add it to insecure_registries in the answers"
            )
        scope = challenge.scope or f"repository:{repository}:pull"
        wanted = {**({"service": challenge.service} if challenge.service else {}), "scope": scope}
        if found is not None and found.is_identity_token:
            form = {"grant_type": "refresh_token", "client_id": "llmb-install", "refresh_token": found.secret}
            answer = self._ask("POST", challenge.realm, wanted | form, {})
        else:
            headers = {"Authorization": _basic(found)} if found is not None else {}
            answer = self._ask("GET", challenge.realm, wanted, headers)
        return self._read_token(answer, repository, found)

    def _read_token(self, answer: Answer, repository: str, found: Credentials | None) -> str:
        if answer.status in (400, 401, 403):
            raise self._rejected(found) if found is not None else self._missing(repository)
        if answer.status != 200:
            message = f"{answer.host}, the token server of {self._registry}, answers HTTP {answer.status}"
            raise self._fault("host-busy", message, "try again later")
        data = parse_json(answer.body, f"the token of {answer.host}")
        token = data.get("token") or data.get("access_token")
        if not isinstance(token, str):
            message = f"{answer.host}, the token server of {self._registry}, sends no token"
            raise self._fault("registry-unusable", message, "check the registry's name")
        return token

    def _find(self, token_host: str | None) -> Credentials | None:
        if not self._is_searched:
            self._credentials = find_credentials(self._registry, self._environ, self._home, token_host=token_host)
            self._is_searched = True
        return self._credentials

    def _rejected(self, found: Credentials) -> LlmbError:
        message = f"{self._registry} rejects the credentials of {found}"
        self._refusal = self._fault("credentials-refused", message, f"they may have expired; {self._log_in()}")
        return self._refusal

    def _missing(self, repository: str) -> LlmbError:
        message = f"{self._registry} requires credentials for {repository}, and none were found"
        return self._fault("credentials-missing", message, self._fix())

    def _fix(self) -> str:
        return f"{self._log_in()}; searched {searched_places(self._registry, self._environ, self._home)}"

    def _log_in(self) -> str:
        if self._registry == NGC:
            return f"set {NGC_KEY} to an NGC key (https://org.ngc.nvidia.com/setup/api-keys)"
        return f"docker login {self._registry}, or set {' and '.join(variables(self._registry))}"


def _basic(found: Credentials) -> str:
    return f"Basic {base64.b64encode(f'{found.user}:{found.secret}'.encode()).decode()}"
