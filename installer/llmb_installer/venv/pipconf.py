# SPDX-License-Identifier: Apache-2.0
"""Reads pip's configuration, its files and variables, for uv, which does not read them.

Source: pip's documentation, "Configuration" (order of files: global, user, site; variables over
all; the section of a command over [global]), and uv's, "Environment variables" and "Compatibility
with pip".
"""

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from llmb.core import files
from llmb.errors import LlmbError

_FALSE = ("", "0", "false", "no", "off", "n", "f")


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return pip's settings for ``pip install``, by name, such as ``index-url``."""
    file_settings: dict[str, str] = {}
    for path in _files(environ):
        parser = _parsed(path)
        for section in ("global", "install"):
            if parser.has_section(section):
                file_settings |= {_name(key): value for key, value in parser.items(section)}
    variable_settings = {
        _name(key.removeprefix("PIP_")): value
        for key, value in environ.items()
        if key.startswith("PIP_")
    }
    return {**file_settings, **variable_settings}


def _parsed(path: Path) -> configparser.RawConfigParser:
    """Return a configuration file of pip, empty if it is missing.

    Raises LlmbError if pip cannot read it either.
    """
    parser = configparser.RawConfigParser()
    hint = (
        "correct it (pip config debug lists the files that pip reads), or set PIP_CONFIG_FILE to"
        " another file"
    )
    try:
        parser.read(path, encoding="utf-8")
    except UnicodeDecodeError as error:
        raise LlmbError(f"{path} is not UTF-8", hint=hint, code="pip-config-invalid") from error
    except configparser.Error as error:
        line = getattr(error, "lineno", None) or next(
            (number for number, _ in getattr(error, "errors", ())), None
        )
        place = f"{path}:{line}" if line else str(path)
        raise LlmbError(
            f"{place} is not valid pip configuration", hint=hint, code="pip-config-invalid"
        ) from error
    except OSError as error:
        raise LlmbError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    return parser


def _name(key: str) -> str:
    return key.lower().replace("_", "-")


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    config_file = environ.get("PIP_CONFIG_FILE")
    if config_file == os.devnull:
        return
    home = files.expand(environ.get("HOME", "~"))
    for folder in reversed((environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    yield home / ".pip" / "pip.conf"
    yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if config_file:
        yield Path(config_file)


def uv_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return uv's variables for pip's settings, without the variables that the user set.

    Variables and not arguments, since the URL of an index may contain a password.
    """
    pip = settings(environ)
    variables = {
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
        # as pip does: the best version, whichever index has it
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        # a hard link into the cache would let a change here spoil every later environment
        "UV_LINK_MODE": "copy",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
    }
    return {name: value for name, value in variables.items() if value and not environ.get(name)}


def no_index(environ: Mapping[str, str]) -> bool:
    """Return True if pip uses no index. uv has no variable for that."""
    return _is_true(settings(environ).get("no-index", ""))


def _is_true(value: str) -> bool:
    return value.strip().lower() not in _FALSE


def for_pip(environ: Mapping[str, str], *, offline: bool) -> dict[str, str]:
    """Return the environment for pip. ``offline`` (a wheelhouse) has no configuration."""
    variables = {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
    if offline:
        variables = {
            name: value for name, value in variables.items() if not name.startswith("PIP_")
        }
        variables |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    return {**variables, "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def for_uv(environ: Mapping[str, str], *, offline: bool) -> dict[str, str]:
    """Return the environment for uv with pip's settings. ``offline`` (a wheelhouse) has none."""
    variables = {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
    if not offline:
        return {**variables, **uv_variables(environ)}
    variables = {
        name: value
        for name, value in variables.items()
        if not name.startswith("UV_") or name == "UV_CACHE_DIR"
    }
    fixed = ("UV_LINK_MODE", "UV_PYTHON_DOWNLOADS", "UV_NO_PROGRESS", "UV_NO_CACHE")
    settings_of_pip = {
        name: value for name, value in uv_variables(environ).items() if name in fixed
    }
    return {**variables, **settings_of_pip, "UV_NO_CONFIG": "1", "UV_OFFLINE": "1"}
