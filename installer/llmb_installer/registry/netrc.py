# SPDX-License-Identifier: Apache-2.0
"""Reads enroot's credentials: netrc lines whose password may be a variable or a command, as enroot takes them.

machine nvcr.io login $oauthtoken password <key>
machine gcr.io login oauth2accesstoken password $(gcloud auth print-access-token)
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmb.errors import LlmbError
from llmb.system import shell

_COMMAND_SECONDS = 30.0
_WORD = re.compile(r'\$\([^)]*\)|"((?:\\.|[^"\\])*)"|\S+')


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The login of one machine, its password as it stands in the file."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user!r}, ...)"


def look_up(path: Path, hosts: Sequence[str], environ: Mapping[str, str]) -> Login | None:
    """The login for the first of ``hosts`` that the file ``path`` has; None when it has none, or there is no file.

    Raises LlmbError when it cannot be read, or the command that a password names fails.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise LlmbError(f"{path} cannot be read: {error}", hint="its owner alone should read it: chmod 600") from error
    machines = parse(text)
    found = next((machines[host] for host in hosts if host in machines), None)
    return found and Login(user=found.user, password=_value(found.password, path, environ))


def parse(text: str) -> dict[str, Login]:
    """The logins by machine; of two for one machine the first, as curl takes it. Incomplete ones are left out."""
    found: dict[str, Login] = {}
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    words = [match[1] if match[1] is not None else match[0] for match in _WORD.finditer("\n".join(lines))]
    machine, fields = "", dict[str, str]()
    for key, value in [*_pairs(words), ("machine", "")]:
        if key == "machine":
            if machine and {"login", "password"} <= fields.keys():
                found.setdefault(machine, Login(user=fields["login"], password=fields["password"]))
            machine, fields = value, {}
        else:
            fields[key] = value
    return found


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    """Each keyword with the word behind it; other words are passed over."""
    pairs, index = [], 0
    while index < len(words) - 1:
        if words[index] in ("machine", "login", "password", "account"):
            pairs.append((words[index], words[index + 1]))
            index += 1
        index += 1
    return pairs


def _value(password: str, path: Path, environ: Mapping[str, str]) -> str:
    """The password itself, where the file has a variable or a command for it. No shell is involved."""
    if variable := re.fullmatch(r"\$(?:(\w+)|\{(\w+)\})", password):
        name = variable[1] or variable[2]
        if not environ.get(name):
            raise LlmbError(f"{path} takes a password from {name}, which is not set", hint=f"export {name}=...")
        return environ[name]
    if not password.startswith("$("):
        return password
    argv = shlex.split(password[2:-1])
    done = shell.run(argv, env=environ, timeout=_COMMAND_SECONDS) if argv else None
    if done is None or done.code or not done.out.strip():
        said = f": {done.err.strip()}" if done is not None and done.err.strip() else ""
        raise LlmbError(f"{path}: the command {password} gives no password{said}", hint="log in with it again")
    return done.out.strip()
