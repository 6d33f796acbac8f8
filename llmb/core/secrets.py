# SPDX-License-Identifier: Apache-2.0
"""Recognizes names of secrets, and reads and saves their values.

No script, record or log may contain one.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from llmb.core import files
from llmb.errors import LlmbError

SECRETS_FILE = "~/.config/llmb/secrets"
_SECRET = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?"
    r"|(API|ACCESS|SECRET|ACCOUNT|PRIVATE|MASTER|SIGNING)KEY)$|(^|_)KEY$"
    r"|_(PASS|PWD|PW|CREDS|AUTH)$",  # PWD and OLDPWD are folders
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return True if the name is that of a secret: ``*TOKEN``, ``*_KEY``, ``*_PASS``."""
    return _SECRET.search(name) is not None


def find(names: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets ``names`` from the environment or else from SECRETS_FILE.

    Missing secrets are omitted. Raises LlmbError if that file is readable for others, or has a line
    that is not ``NAME=value``.
    """
    values = {name: environ[name] for name in names if environ.get(name)}
    missing = [name for name in names if name not in values]
    saved = _read_file(files.expand(SECRETS_FILE)) if missing else {}
    return values | {name: saved[name] for name in missing if saved.get(name)}


def names() -> list[str]:
    """The names of the secrets in SECRETS_FILE. Raises LlmbError like ``find``."""
    return [*_read_file(files.expand(SECRETS_FILE))]


def save(values: Mapping[str, str]) -> None:
    """Save secrets in SECRETS_FILE, readable only for its user. Raises LlmbError.

    Other secrets there are kept.
    """
    if not values:
        return
    path = files.at_home(SECRETS_FILE)
    if faulty := next((name for name, value in values.items() if "\n" in value), None):
        raise LlmbError(
            f"{faulty} has more than one line",
            hint="a secret is one line",
            code="secret-invalid",
            key=faulty,
        )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _read_file(path)
    lines = _lines(path) if path.exists() else []
    lines = [line for line in lines if _name(line) not in values]
    while lines and not lines[-1].strip():
        lines.pop()
    written = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    try:
        files.write_text(path, "\n".join([*lines, *written, ""]), mode=0o600)
    except UnicodeEncodeError as error:
        message = f"{', '.join(values)} cannot be saved: it contains an invalid character"
        raise LlmbError(message, hint="type it again, in UTF-8", code="secret-invalid") from error


def _read_file(path: Path) -> dict[str, str]:
    try:
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            message = f"others can read {path}: its mode is {mode:o}"
            fix = f"chmod 600 {shlex.quote(str(path))}"
            raise LlmbError(message, hint=fix, code="secrets-readable", value=path)
        lines = _lines(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise LlmbError(
            f"{path} cannot be read: {error.strerror}",
            hint="make it a file that you can read",
            code="file-unreadable",
        ) from error
    values = {}
    for number, line in enumerate(lines, 1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            message = f"{path}:{number} is not of the form NAME=value"
            raise LlmbError(
                message, hint="write one secret on each line", code="secret-invalid", value=number
            )
        values[name.strip()] = _unquoted(value.strip())
    return values


def _lines(path: Path) -> list[str]:
    """The lines of the file, separated only by newlines. Raises OSError, LlmbError."""
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        message, hint = f"{path}:{line} is not UTF-8", "save the file as UTF-8"
        raise LlmbError(message, hint=hint, code="not-utf-8", value=line) from error


def _name(line: str) -> str:
    return line.partition("=")[0].strip().removeprefix("export ").strip()


def _unquoted(value: str) -> str:
    """Remove the shell quotes that ``save`` writes."""
    if value[:1] not in ("'", '"'):
        return value
    try:
        words = shlex.split(value)
    except ValueError:  # an unclosed quote is part of the value
        return value
    return words[0] if len(words) == 1 else value
