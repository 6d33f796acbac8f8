# SPDX-License-Identifier: Apache-2.0
"""The files in /etc that tell enroot, and so pyxis, how a container starts; enroot import writes the same ones.

Without /etc/environment a job lacks the image's variables, so NVIDIA_VISIBLE_DEVICES and with it the GPUs. The formats
are enroot's (its doc/image-format.md): volumes as lines of fstab, variables as NAME=VALUE, rc as a shell script that
gets the container's command as its arguments.
"""

import re
from collections.abc import Mapping
from typing import Any

ENVIRONMENT, RC, FSTAB, RC_LOCAL = "etc/environment", "etc/rc", "etc/fstab", "etc/rc.local"

_RC = """\
mkdir -p {folder} 2> /dev/null
cd {folder} && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec {entry}"$@"
else
    exec {entry}{command}
fi
"""
_RC_LOCAL = "# /etc/rc reads this when the container starts; it may change the container's command.\n"


def etc_files(config: Mapping[str, Any]) -> dict[str, bytes]:
    """The content of each file by its path in the image, from ``config`` of the image's configuration."""
    texts = {
        ENVIRONMENT: _lines(map(str, config.get("Env") or ())),
        FSTAB: _lines(
            f"${{ENROOT_ROOTFS}}{path} {path} none x-create=dir,bind,rw,nosuid,nodev"
            for path in sorted(config.get("Volumes") or ())
        ),
        RC: _rc(config),
        RC_LOCAL: _RC_LOCAL,
    }
    return {path: text.encode("utf-8", "surrogateescape") for path, text in texts.items()}


def working_folder(config: Mapping[str, Any]) -> str:
    """The folder in which the container starts."""
    return str(config.get("WorkingDir") or "/")


def _rc(config: Mapping[str, Any]) -> str:
    labels = config.get("Labels") or {}
    comments = _lines(f"# {key} {value}" for key, value in labels.items())
    entry = [_quoted(word) for word in config.get("Entrypoint") or ()]
    command = [_quoted(word) for word in config.get("Cmd") or ()]
    if not entry and not command:
        command = [_quoted("/bin/sh")]
    script = _RC.format(
        folder=_quoted(working_folder(config)), entry="".join(f"{word} " for word in entry), command=" ".join(command)
    )
    return f"{comments}\n{script}" if comments else script


def _lines(lines: Any) -> str:
    """One line each; line breaks inside become blanks, because the rest would be read as another line."""
    return "".join(re.sub(r"[\r\n\0]+", " ", line) + "\n" for line in lines)


def _quoted(word: str) -> str:
    """``word`` quoted for the shell."""
    return "'" + str(word).replace("\0", "").replace("'", "'\\''") + "'"
