# SPDX-License-Identifier: Apache-2.0
"""Reads pip's configuration, its files and variables, and passes it to uv, which does not read them.

Source: pip's documentation, "Configuration" (order of files: global, user, site; variables over all; the section of a
command over [global]), and uv's, "Environment variables" and "Compatibility with pip".
"""

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from llmb.errors import LlmbError
from llmb.system import files

_FALSE = ("", "0", "false", "no", "off", "n", "f")


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """pip's settings for ``pip install``, by name, such as ``index-url``."""
    found: dict[str, str] = {}
    for path in _files(environ):
        parser = _parsed(path)
        for section in ("global", "install"):
            if parser.has_section(section):
                found |= {_name(key): value for key, value in parser.items(section)}
    given = {_name(key.removeprefix("PIP_")): value for key, value in environ.items() if key.startswith("PIP_")}
    return {**found, **given}


def _parsed(path: Path) -> configparser.RawConfigParser:
    """A configuration file of pip, empty where it is missing. Raises LlmbError where pip cannot read it either."""
    parser = configparser.RawConfigParser()
    hint = "correct it (pip config debug lists the files that pip reads), or set PIP_CONFIG_FILE to another file"
    try:
        parser.read(path, encoding="utf-8")
    except UnicodeDecodeError as error:
        raise LlmbError(f"{path} is not UTF-8", hint=hint, code="pip-config-invalid") from error
    except configparser.Error as error:
        line = getattr(error, "lineno", None) or next((one for one, _ in getattr(error, "errors", ())), None)
        place = f"{path}:{line}" if line else str(path)
        raise LlmbError(f"{place} is not valid pip configuration", hint=hint, code="pip-config-invalid") from error
    except OSError as error:
        raise LlmbError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    return parser


def _name(key: str) -> str:
    return key.lower().replace("_", "-")


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    home = files.expand(environ.get("HOME", "~"))
    for folder in reversed((environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    yield home / ".pip" / "pip.conf"
    yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if named:
        yield Path(named)


def uv_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """uv's variables for pip's settings, without those that the user set.

    Variables and not arguments, since the URL of an index may contain a password.
    """
    pip = settings(environ)
    found = {
        "UV_DEFAULT_INDEX": pip.get("index-url", ""),
        "UV_INDEX": " ".join(pip.get("extra-index-url", "").split()),
        "UV_FIND_LINKS": ",".join(pip.get("find-links", "").split()),
        "UV_INSECURE_HOST": " ".join(pip.get("trusted-host", "").split()),
        "UV_HTTP_TIMEOUT": pip.get("timeout", pip.get("default-timeout", "")),
        "UV_NO_CACHE": "1" if _is_true(pip.get("no-cache-dir", "")) else "",
        "UV_CONSTRAINT": " ".join(pip.get("constraint", "").split()),
        "SSL_CERT_FILE": pip.get("cert", ""),
        "SSL_CLIENT_CERT": pip.get("client-cert", ""),
        "ALL_PROXY": pip.get("proxy", ""),
        "UV_INDEX_STRATEGY": "unsafe-best-match",  # as pip does: the best version, whichever index has it
        "UV_LINK_MODE": "copy",  # a hard link into the cache would let a change here spoil every later environment
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
    }
    return {name: value for name, value in found.items() if value and not environ.get(name)}


def no_index(environ: Mapping[str, str]) -> bool:
    """Whether pip uses no index; uv has no variable for that."""
    return _is_true(settings(environ).get("no-index", ""))


def _is_true(value: str) -> bool:
    return value.strip().lower() not in _FALSE


def for_pip(environ: Mapping[str, str], *, offline: bool) -> dict[str, str]:
    """The environment for pip; ``offline`` (from a wheelhouse) without any configuration."""
    kept = {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
    if offline:
        kept = {name: value for name, value in kept.items() if not name.startswith("PIP_")}
        kept |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    return {**kept, "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def for_uv(environ: Mapping[str, str], *, offline: bool) -> dict[str, str]:
    """The environment for uv with pip's settings; ``offline`` (from a wheelhouse) without any."""
    kept = {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
    if not offline:
        return {**kept, **uv_variables(environ)}
    kept = {name: value for name, value in kept.items() if not name.startswith("UV_") or name == "UV_CACHE_DIR"}
    fixed = ("UV_LINK_MODE", "UV_PYTHON_DOWNLOADS", "UV_NO_PROGRESS", "UV_NO_CACHE")
    own = {name: value for name, value in uv_variables(environ).items() if name in fixed}
    return {**kept, **own, "UV_NO_CONFIG": "1", "UV_OFFLINE": "1"}
