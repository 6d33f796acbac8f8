# SPDX-License-Identifier: Apache-2.0
"""Which names are secrets: their values never go into scripts, records, arguments or logs."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from llmb.errors import LlmbError
from llmb.system import files

SECRETS_FILE = "~/.config/llmb/secrets"
_SECRET = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$|(^|_)KEY$", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret: ``*TOKEN``, ``*SECRET``, ``*_KEY`` and their like."""
    return _SECRET.search(name) is not None


def find(names: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The values of those of the secrets ``names`` that there are: in the environment, else in SECRETS_FILE.

    Raises LlmbError when that file can be read by others, or has a line that is not ``NAME=value``.
    """
    found = {name: environ[name] for name in names if environ.get(name)}
    missing = [name for name in names if name not in found]
    kept = _read_file(files.expand(SECRETS_FILE)) if missing else {}
    return found | {name: kept[name] for name in missing if kept.get(name)}


def names() -> list[str]:
    """The names of the secrets in SECRETS_FILE. Raises LlmbError as ``find`` does."""
    return [*_read_file(files.expand(SECRETS_FILE))]


def save(values: Mapping[str, str]) -> None:
    """Keep secrets in SECRETS_FILE, readable by its user alone; the others there stay. Raises LlmbError."""
    if not values:
        return
    path = files.at_home(SECRETS_FILE)
    if faulty := next((name for name, value in values.items() if "\n" in value), None):
        raise LlmbError(f"{faulty} has more than one line", hint="a secret is one line")
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
        message = f"{', '.join(values)} cannot be kept: a character in it is no text"
        raise LlmbError(message, hint="type it again, in UTF-8") from error


def _read_file(path: Path) -> dict[str, str]:
    try:
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            raise LlmbError(f"others can read {path}: its mode is {mode:o}", hint=f"chmod 600 {path}")
        lines = _lines(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise LlmbError(f"{path} cannot be read: {error.strerror}", hint="make it a file that you can read") from error
    values = {}
    for number, line in enumerate(lines, 1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise LlmbError(f"{path}:{number} is not of the form NAME=value", hint="one secret on each line")
        values[name.strip()] = _unquoted(value.strip())
    return values


def _lines(path: Path) -> list[str]:
    """The lines of the file, which end with newlines alone. Raises OSError, LlmbError."""
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise LlmbError(f"{path}:{line} is not UTF-8", hint="save the file as UTF-8") from error


def _name(line: str) -> str:
    return line.partition("=")[0].strip().removeprefix("export ").strip()


def _unquoted(value: str) -> str:
    """The value as a shell takes it where it is quoted, as ``save`` writes it; as it stands else."""
    if value[:1] not in ("'", '"'):
        return value
    try:
        words = shlex.split(value)
    except ValueError:  # a quote that is not closed is one of the value's own
        return value
    return words[0] if len(words) == 1 else value
