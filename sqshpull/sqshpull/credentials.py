# SPDX-License-Identifier: Apache-2.0
"""Finds a registry's credentials: in the environment, and in files of docker, podman and enroot."""

import base64
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqshpull import files, programs
from sqshpull.errors import PullError
from sqshpull.reference import DOCKER_HUB, HUB_NAMES
from sqshpull.settings import PullUser

NGC, NGC_KEY, NGC_USER = "nvcr.io", "NGC_API_KEY", "$oauthtoken"

# the hosts in enroot's files for these
_TOKEN_HOSTS = {DOCKER_HUB: "auth.docker.io", NGC: "authn.nvidia.com"}
_HUB_KEY = "https://index.docker.io/v1/"
_SECONDS = 30.0  # for a credential helper, or a command in enroot's file
_WORD = re.compile(r'\$\([^)]*\)|"((?:\\.|[^"\\])*)"|\S+')


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryCredentials:
    """A user name and its secret, which is never printed. ``source`` is the place they come from.

    ``is_identity_token``: the secret is an OAuth2 refresh token instead of a password.
    """

    user: str
    secret: str = field(repr=False)
    source: str = ""
    is_identity_token: bool = False

    def __str__(self) -> str:
        return f"'{self.user}' from {self.source}"


def find_credentials(
    registry: str, user: PullUser, *, token_host: str | None = None
) -> RegistryCredentials | None:
    """Return the credentials for ``registry`` with its server ``token_host``, None without any.

    Raises PullError for a file that cannot be read, and for a credential helper that fails.
    """
    environ, home = user.environ, user.home
    if (credentials := _from_variables(registry, user)) is not None:
        return credentials
    for path in _docker_files(environ, home):
        if (credentials := read_docker_config(path, registry, environ)) is not None:
            return replace(credentials, source=f"{_shown(path, home)}{credentials.source}")
    path = _enroot_file(environ, home)
    hosts = [registry, registry.partition(":")[0], token_host, _TOKEN_HOSTS.get(registry)]
    credentials = read_netrc(path, [host for host in hosts if host], environ)
    return credentials and replace(credentials, source=_shown(path, home))


def searched_places(registry: str, user: PullUser) -> str:
    """Return the places that ``find_credentials`` searches, for a message."""
    environ, home = user.environ, user.home
    names = [NGC_KEY] if registry == NGC else [variables(registry)[1]]
    paths = [*_docker_files(environ, home), _enroot_file(environ, home)]
    return ", ".join([*names, *(_shown(path, home) for path in paths)])


def variables(registry: str) -> tuple[str, str]:
    """Return the variables with a registry's user and password: ``REGISTRY_GHCR_IO_USER``, ..."""
    word = re.sub(r"\W", "_", registry).upper()
    return f"REGISTRY_{word}_USER", f"REGISTRY_{word}_PASSWORD"


def _shown(path: Path, home: Path) -> str:
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _from_variables(registry: str, user: PullUser) -> RegistryCredentials | None:
    """Return the credentials from the environment, or from the user's store of secrets."""
    user_variable, password_variable = variables(registry)
    names = [user_variable, password_variable, *([NGC_KEY] if registry == NGC else [])]
    values = {name: user.environ[name] for name in names if user.environ.get(name)}
    missing = [name for name in names if name not in values]
    stored = user.store.find(missing) if user.store is not None and missing else {}
    values |= stored

    def source(name: str) -> str:
        if name in stored and user.store is not None:
            return f"{name} in {user.store.name}"
        return f"the variable {name}"

    if password_variable in values:
        if user_variable not in values:
            message = f"{password_variable} is set, but not {user_variable}"
            hint = f"set {user_variable} too"
            raise PullError(message, hint=hint, code="variable-missing", key=user_variable)
        return RegistryCredentials(
            user=values[user_variable],
            secret=values[password_variable],
            source=source(password_variable),
        )
    if NGC_KEY in values:
        return RegistryCredentials(user=NGC_USER, secret=values[NGC_KEY], source=source(NGC_KEY))
    return None


def _docker_files(environ: Mapping[str, str], home: Path) -> Iterator[Path]:
    """Yield docker's file, and podman's, which has the same format."""
    yield Path(environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    if environ.get("REGISTRY_AUTH_FILE"):
        yield Path(environ["REGISTRY_AUTH_FILE"])
    elif environ.get("XDG_RUNTIME_DIR"):
        yield Path(environ["XDG_RUNTIME_DIR"]) / "containers" / "auth.json"


def _enroot_file(environ: Mapping[str, str], home: Path) -> Path:
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    return Path(environ.get("ENROOT_CONFIG_PATH") or config / "enroot") / ".credentials"


def read_docker_config(
    path: Path, registry: str, environ: Mapping[str, str]
) -> RegistryCredentials | None:
    """Return the credentials by docker's config.json at ``path``, None without any.

    The registry's own credential helper comes first, then the common one, then the file itself.
    ``source`` names the helper. Raises PullError for a damaged file and for a helper that fails.
    """
    data = files.read_json(path)
    if not isinstance(data, dict):
        return None
    auths, helpers = _mapping(data, "auths"), _mapping(data, "credHelpers")
    helper = next(
        (name for key, name in helpers.items() if _is_for(key, registry)), None
    ) or data.get("credsStore")
    entry = next((entry for key, entry in auths.items() if _is_for(key, registry) and entry), None)
    if isinstance(helper, str) and helper:
        credentials = _ask_helper(helper, registry, environ, path)
        if credentials is not None:
            return credentials
    return _from_entry(entry, path, registry) if isinstance(entry, dict) else None


def _mapping(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _is_for(key: str, registry: str) -> bool:
    """Return True if a key of the file (``https://index.docker.io/v1/``) means ``registry``."""
    host = key.partition("://")[2] or key
    host = host.partition("/")[0].lower()
    return host == registry or (registry == DOCKER_HUB and host in HUB_NAMES)


def _from_entry(entry: dict[str, Any], path: Path, registry: str) -> RegistryCredentials | None:
    user, secret = entry.get("username"), entry.get("password")
    if entry.get("auth"):
        try:
            user, colon, secret = (
                base64.b64decode(entry["auth"], validate=True).decode().partition(":")
            )
        except (TypeError, ValueError):
            colon = ""
        if not colon:
            message = f"{path}: 'auth' of {registry} cannot be decoded"
            hint = f"log in again: docker login {registry}"
            raise PullError(message, hint=hint, code="credentials-unreadable", key=str(path))
    if entry.get("identitytoken"):
        return RegistryCredentials(
            user=user or "<token>", secret=str(entry["identitytoken"]), is_identity_token=True
        )
    return RegistryCredentials(user=str(user), secret=str(secret)) if user and secret else None


def _ask_helper(
    helper: str, registry: str, environ: Mapping[str, str], path: Path
) -> RegistryCredentials | None:
    """Return the credentials of a credential helper, by docker's protocol, None if it has none."""
    program = f"docker-credential-{helper}"
    server = _HUB_KEY if registry == DOCKER_HUB else registry
    try:
        done = programs.run([program, "get"], env=environ, timeout=_SECONDS, stdin=server)
    except PullError as error:
        raise _helper_failed(path, program, error.message) from error
    if done.code:
        output = (done.out or done.err).strip()
        if "not found" in output.lower():  # docker's protocol has no other sign
            return None
        raise _helper_failed(path, program, output or f"exit code {done.code}")
    try:
        answer = json.loads(done.out)
        user, secret = answer["Username"], answer["Secret"]
    except (ValueError, KeyError, TypeError) as error:
        raise _helper_failed(path, program, "its output has no Username and Secret") from error
    if not secret:
        return None
    return RegistryCredentials(
        user=user, secret=secret, is_identity_token=user == "<token>", source=f" ({program})"
    )


def _helper_failed(path: Path, program: str, cause: str) -> PullError:
    message = f"{program}, the credential helper that {path} names, failed: {cause}"
    hint = "fix it, or remove its line ('credsStore', 'credHelpers') from that file"
    return PullError(message, hint=hint, code="credential-helper-failed", key=program, value=cause)


def read_netrc(
    path: Path, hosts: Sequence[str], environ: Mapping[str, str]
) -> RegistryCredentials | None:
    """Return the credentials for the first of ``hosts`` in enroot's file, None without any.

    Its lines are netrc's, and a password may be a variable or a command, which is run without a
    shell:

        machine gcr.io login oauth2accesstoken password $(gcloud auth print-access-token)

    Raises PullError for a file that cannot be read, and for a command that fails.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        message, hint = (
            f"{path} cannot be read: {error}",
            f"make it readable for you alone: chmod 600 {shlex.quote(str(path))}",
        )
        raise PullError(message, hint=hint, code="credentials-unreadable", key=str(path)) from error
    machines = parse_netrc(text)
    credentials = next((machines[host] for host in hosts if host in machines), None)
    return credentials and replace(credentials, secret=_password(credentials.secret, path, environ))


def parse_netrc(text: str) -> dict[str, RegistryCredentials]:
    """Return the credentials by machine, with unresolved passwords.

    Of two for a machine the first counts, as for curl. Incomplete ones are omitted.
    """
    credentials: dict[str, RegistryCredentials] = {}
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    words = [
        match[1] if match[1] is not None else match[0] for match in _WORD.finditer("\n".join(lines))
    ]
    machine, fields, remaining_words = "", dict[str, str](), iter(words)
    pairs = [
        (word, next(remaining_words, None))
        for word in remaining_words
        if word in ("machine", "login", "password", "account")
    ]
    for key, value in [*pairs, ("machine", "")]:
        if value is None:  # a keyword at the end
            continue
        if key == "machine":
            if machine and {"login", "password"} <= fields.keys():
                credentials.setdefault(
                    machine, RegistryCredentials(user=fields["login"], secret=fields["password"])
                )
            machine, fields = value, {}
        else:
            fields[key] = value
    return credentials


def _password(text: str, path: Path, environ: Mapping[str, str]) -> str:
    """Return the password itself, if the file has a variable or a command for it."""
    if variable := re.fullmatch(r"\$(?:(\w+)|\{(\w+)\})", text):
        name = variable[1] or variable[2]
        if not environ.get(name):
            message = f"{path} takes a password from the variable {name}, which is not set"
            raise PullError(message, hint=f"export {name}=...", code="variable-missing", key=name)
        return environ[name]
    if not text.startswith("$("):
        return text
    argv = shlex.split(text[2:-1])
    output = programs.run(argv, env=environ, timeout=_SECONDS) if argv else None
    if output is None or output.code or not output.out.strip():
        cause = output.err.strip() if output is not None else ""
        message = f"{path}: the command {text} prints no password{f': {cause}' if cause else ''}"
        raise PullError(
            message,
            hint="log in with that program again",
            code="credential-helper-failed",
            key=text,
            value=cause,
        )
    return output.out.strip()
