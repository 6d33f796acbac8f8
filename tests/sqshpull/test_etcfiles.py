# SPDX-License-Identifier: Apache-2.0
"""Tests of the files that tell enroot how a container starts."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from sqshpull.image_tar import etc_files

CONFIG = {
    "Env": ["PATH=/usr/bin", "NVIDIA_VISIBLE_DEVICES=all", "TWO=a\nLINES=b"],
    "WorkingDir": "/workspace",
    "Entrypoint": ["/opt/nvidia/entry.sh"],
    "Cmd": ["bash", "-l"],
    "Volumes": {"/data": {}, "/cache": {}},
    "Labels": {"maintainer": "us\nrm -rf /"},
}
RC = b"""\
# maintainer us rm -rf /

mkdir -p '/workspace' 2> /dev/null
cd '/workspace' && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec '/opt/nvidia/entry.sh' "$@"
else
    exec '/opt/nvidia/entry.sh' 'bash' '-l'
fi
"""


def test_the_files_of_an_image() -> None:
    found = etc_files(CONFIG)
    assert found["etc/environment"] == b"PATH=/usr/bin\nNVIDIA_VISIBLE_DEVICES=all\nTWO=a LINES=b\n"
    assert found["etc/rc"] == RC
    assert found["etc/fstab"] == (
        b"${ENROOT_ROOTFS}/cache /cache none x-create=dir,bind,rw,nosuid,nodev\n"
        b"${ENROOT_ROOTFS}/data /data none x-create=dir,bind,rw,nosuid,nodev\n"
    )


@pytest.mark.parametrize(
    "config", [{}, {"Env": None, "Cmd": None, "Labels": None, "Volumes": None}]
)
def test_an_empty_configuration(config: dict[str, Any]) -> None:
    found = etc_files(config)
    assert (found["etc/environment"], found["etc/fstab"]) == (b"", b"")
    assert b"cd '/' &&" in found["etc/rc"]
    assert b"exec '/bin/sh'\n" in found["etc/rc"]


@pytest.mark.parametrize(
    ("config", "arguments", "printed"),
    [
        (
            {"Entrypoint": ["printf", "[%s]"], "Cmd": ["it's", "$HOME `x`", "a\\b"]},
            [],
            "[it's][$HOME `x`][a\\b]",
        ),
        ({"Entrypoint": ["printf", "[%s]"], "Cmd": ["unused"]}, ["one two", "$x"], "[one two][$x]"),
        ({"Cmd": ["echo", "as it is"]}, [], "as it is\n"),
        ({"Cmd": ["echo", "unused"]}, ["echo", "-e", "mine"], "mine\n"),
    ],
)
def test_the_script_starts_the_command_of_the_image(
    tmp_path: Path, config: dict[str, Any], arguments: list[str], printed: str
) -> None:
    script = tmp_path / "rc"
    folder = tmp_path / "it's $here"
    script.write_bytes(
        etc_files({**config, "WorkingDir": str(folder)})["etc/rc"].replace(
            b"/etc/rc.local", b"/nowhere"
        )
    )
    done = subprocess.run(["bash", script, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")
    assert folder.is_dir()
