# SPDX-License-Identifier: Apache-2.0
"""Identifies us to one registry when it asks: Basic, or a token of its token server, kept for each repository.

Nothing is sent to a host that has not asked for it, and no credentials are looked for before that.
"""

import base64
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from llmb_installer.registry.challenge import Challenge, read_challenges
from llmb_installer.registry.credentials import NGC, NGC_KEY, Credentials, find_credentials, looked_in, variables
from llmb_installer.registry.faults import ImageFaultError
from llmb_installer.registry.manifests import parse_json
from llmb_installer.registry.transport import Answer

Ask = Callable[[str, str, Mapping[str, str], Mapping[str, str]], Answer]


class Access:
    """What is known of our right to read from ``registry``.

    ``root`` gives the address of its API, ``https://HOST/v2/``. ``ask(method, url, parameters, headers)`` gives the
    whole answer of that or of a token server; ``may_be_plain`` says of a host whether secrets may go there without TLS.
    """

    def __init__(
        self,
        registry: str,
        environ: Mapping[str, str],
        home: Path,
        root: Callable[[], str],
        ask: Ask,
        may_be_plain: Callable[[str], bool],
    ) -> None:
        self._registry, self._environ, self._home = registry, environ, home
        self._root, self._ask, self._may_be_plain = root, ask, may_be_plain
        self._tokens: dict[str, str] = {}
        self._basic: str | None = None
        self._credentials: Credentials | None = None
        self._looked = False
        self._known_refusal: ImageFaultError | None = None
        self._renewing = threading.Lock()

    def header(self, repository: str) -> str | None:
        """The Authorization header for ``repository``, None as long as nobody has asked for one.

        Raises ImageFaultError once our credentials were refused: a wrong password sent often locks its user out.
        """
        self._heed_refusal()
        return self._tokens.get(repository) or self._basic

    def answer(self, repository: str, challenges: Sequence[str], refused: str | None) -> str:
        """The header that answers the WWW-Authenticate headers ``challenges``, after ``refused`` was sent.

        Of several threads whose token has run out one renews it. Raises ImageFaultError.
        """
        with self._renewing:
            self._heed_refusal()
            present = self._tokens.get(repository) or self._basic
            if present is None or present == refused:
                present = self._new(repository, read_challenges(challenges))
            return present

    def _heed_refusal(self) -> None:
        if self._known_refusal is not None:
            raise self._known_refusal

    def denied(self, repository: str, status: int) -> ImageFaultError:
        """The error that the registry says no, by the HTTP ``status``, to what ``answer`` gave."""
        found = self._credentials
        if self.header(repository) is None:
            message = f"{self._registry} forbids {repository} without asking who wants it (HTTP {status})"
            return ImageFaultError("refused", message, hint="check the name, and what stands before the registry")
        if found is None:
            message = f"{self._registry}/{repository} is not there, or not for everybody"
            return ImageFaultError("no_credentials", message, hint=f"check the name; {self._fix()}")
        message = f"{self._registry}/{repository} is not there, or may not be read by {found}"
        return ImageFaultError("refused", message, hint="check the name, and what this user was granted")

    def _new(self, repository: str, challenges: list[Challenge]) -> str:
        for challenge in challenges:
            if challenge.scheme == "bearer" and challenge.realm:
                self._tokens[repository] = header = f"Bearer {self._token(repository, challenge)}"
                return header
            if challenge.scheme == "basic":
                self._basic = self._tried(repository)
                return self._basic
        schemes = ", ".join(challenge.scheme for challenge in challenges)
        message = f"{self._registry} wants credentials in a way that is not known ({schemes})"
        if not schemes:
            message = f"{self._registry} refuses {repository} (HTTP 401) and does not say how to log in"
        raise ImageFaultError("unusable", message, hint="check the registry's name, and what stands before it")

    def _tried(self, repository: str) -> str:
        """The header of Basic, tried once where nothing but the password counts."""
        found = self._find(None)
        if found is None:
            raise self._missing(repository)
        header = _basic(found)
        if self._ask("GET", self._root(), {}, {"Authorization": header}).status == 401:
            raise self._refused(found)
        return header

    def _token(self, repository: str, challenge: Challenge) -> str:
        """A new token, as docker's registries describe it, or by OAuth2 where there is an identity token."""
        server = urlsplit(challenge.realm)
        found = self._find(server.hostname)
        if server.scheme != "https" and not (server.scheme == "http" and self._may_be_plain(server.netloc)):
            message = f"{self._registry} sends to {challenge.realm} for a token, where secrets would go without TLS"
            raise ImageFaultError("unusable", message, hint="name its host in insecure_registries if you trust the way")
        scope = challenge.scope or f"repository:{repository}:pull"
        wanted = {**({"service": challenge.service} if challenge.service else {}), "scope": scope}
        if found is not None and found.identity_token:
            form = {"grant_type": "refresh_token", "client_id": "llmb-install", "refresh_token": found.secret}
            answer = self._ask("POST", challenge.realm, wanted | form, {})
        else:
            headers = {"Authorization": _basic(found)} if found is not None else {}
            answer = self._ask("GET", challenge.realm, wanted, headers)
        return self._read_token(answer, repository, found)

    def _read_token(self, answer: Answer, repository: str, found: Credentials | None) -> str:
        if answer.status in (400, 401, 403):
            raise self._refused(found) if found is not None else self._missing(repository)
        if answer.status != 200:
            message = f"the token server {answer.host} of {self._registry} answers HTTP {answer.status}"
            raise ImageFaultError("busy", message, hint="try again later")
        data = parse_json(answer.body, f"the token of {answer.host}")
        token = data.get("token") or data.get("access_token")
        if not isinstance(token, str):
            raise ImageFaultError("unusable", f"{answer.host} gives no token", hint="check the registry's name")
        return token

    def _find(self, token_host: str | None) -> Credentials | None:
        if not self._looked:
            self._credentials = find_credentials(self._registry, self._environ, self._home, token_host=token_host)
            self._looked = True
        return self._credentials

    def _refused(self, found: Credentials) -> ImageFaultError:
        message = f"{self._registry} refuses the credentials of {found}"
        self._known_refusal = ImageFaultError("refused", message, hint=f"they may have run out; {self._log_in()}")
        return self._known_refusal

    def _missing(self, repository: str) -> ImageFaultError:
        message = f"{self._registry} wants credentials for {repository}, and none were found"
        return ImageFaultError("no_credentials", message, hint=self._fix())

    def _fix(self) -> str:
        return f"{self._log_in()}; looked in {looked_in(self._registry, self._environ, self._home)}"

    def _log_in(self) -> str:
        if self._registry == NGC:
            return f"set {NGC_KEY} to a key of NGC (https://org.ngc.nvidia.com/setup/api-keys)"
        return f"docker login {self._registry}, or set {' and '.join(variables(self._registry))}"


def _basic(found: Credentials) -> str:
    return f"Basic {base64.b64encode(f'{found.user}:{found.secret}'.encode()).decode()}"
