# SPDX-License-Identifier: Apache-2.0
"""Tests of building with enroot: its command line, and checks of the file that it wrote.

The mock knows the documented command line of enroot import and srun, and the quirks of enroot 3: a
missing architecture is a warning, and an existing file an error.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb_testing.real_registry import RealRegistry
from llmb_testing.sample_images import Layer, SampleImage, file, make_index
from sqshpull.build import pull
from sqshpull.enroot import import_argv, uri
from sqshpull.errors import PullError
from sqshpull.record import ImageRecord, check
from sqshpull.reference import ImageReference
from sqshpull.settings import PullSettings, PullUser

_ARM = bytes.fromhex("7f454c46020101000000000000000000") + b"\x02\x00\xb7\x00" + bytes(44)
_ENROOT = """#!/bin/bash
set -euo pipefail
if [[ $1 == version ]]; then echo "${FAKE_VERSION:-3.4.1}"; exit; fi
[[ $1 == import && $2 == -a && $4 == -o && $# == 6 ]] || { echo "Usage: enroot import" >&2; exit 1; }
printf '%s\\n' "$@" > "$FAKE_SEEN"
env | grep -E '^(ENROOT_|TMPDIR=)' | sort >> "$FAKE_SEEN"
[[ -z ${ENROOT_CACHE_PATH:-} || ( -d $ENROOT_CACHE_PATH && -d $ENROOT_TEMP_PATH ) ]] || exit 1
[[ ! -e $5 ]] || { echo "[ERROR] File already exists: $5" >&2; exit 1; }
case ${FAKE_FAULT:-} in
    fails) echo "[ERROR] URL https://x/v2/ returned error code: 401 Unauthorized" >&2; exit 1 ;;
    cut) head -c 120 "$FAKE_IMAGE" > "$5" ;;
    silent) : ;;
    *) cp "$FAKE_IMAGE" "$5" ;;
esac
"""
_SRUN = """#!/bin/bash
printf '%s\\n' "$@" > "$FAKE_SEEN.srun"
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""


@pytest.fixture
def mocks(tmp_path: Path, squashed: Callable[..., Path]) -> dict[str, str]:
    """An enroot and a srun on PATH, the images that they import, and the environment for both."""
    (tmp_path / "bin").mkdir()
    for name, text in (("enroot", _ENROOT), ("srun", _SRUN)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    intel = SampleImage(
        layers=(Layer(entries=(file("usr/bin/bash", _ARM[:18] + b"\x3e" + _ARM[19:]),)),)
    )
    arm = SampleImage(layers=(Layer(entries=(file("usr/bin/bash", _ARM),)),))
    squashed(arm, "arm.sqsh")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    image = squashed(intel, "intel.sqsh")
    return {
        **os.environ,
        "PATH": path,
        "FAKE_IMAGE": str(image),
        "FAKE_SEEN": str(tmp_path / "seen"),
    }


@pytest.fixture
def build(
    mocks: dict[str, str],
    registry: RealRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
) -> Callable[..., ImageRecord]:
    """Builds an image of the registry by enroot; the first are further variables, keywords
    PullSettings.
    """
    image = SampleImage(layers=(Layer(entries=(file("a", b"1"),)),))
    registry.push("public/enroot", "1", make_index([image]))
    monkeypatch.setenv("PATH", mocks["PATH"])

    def run(variables: dict[str, str] | None = None, **settings: Any) -> ImageRecord:
        return pull(
            registry.reference("public/enroot", "1"),
            tmp_path / "x.sqsh",
            architecture="x86_64",
            settings=PullSettings(builder="enroot", **settings),
            user=PullUser(environ={**mocks, **(variables or {})}, home=home),
            log=tmp_path / "log",
        )

    return run


def test_command_line_and_environment(
    build: Callable[..., ImageRecord], registry: RealRegistry, tmp_path: Path
) -> None:
    facts = build()
    assert (facts.builder, facts.architecture) == ("enroot", "amd64")
    assert facts.digest is not None
    assert check(tmp_path / "x.sqsh", deep=True) is None
    seen = (tmp_path / "seen").read_text().splitlines()
    assert seen[:3] == ["import", "-a", "x86_64"]
    assert seen[5] == f"docker://{registry.host}#public/enroot:1"
    (options,) = [
        line.partition("=")[2] for line in seen if line.startswith("ENROOT_SQUASH_OPTIONS=")
    ]
    assert options.split() == ["-comp", "zstd", "-Xcompression-level", "3", "-b", "1M"]
    assert "ENROOT_ALLOW_HTTP=yes" in seen, "this registry is on loopback without TLS"
    assert not any(line.startswith(("ENROOT_CACHE_PATH", "ENROOT_TEMP_PATH")) for line in seen), (
        "as the site has it"
    )
    assert not [*tmp_path.glob(".*.part")]


def test_cache_folder(build: Callable[..., ImageRecord], tmp_path: Path) -> None:
    build(cache=tmp_path / "cache")
    seen = (tmp_path / "seen").read_text()
    for name in ("ENROOT_CACHE_PATH", "ENROOT_TEMP_PATH"):
        assert f"{name}={tmp_path}/cache/x.sqsh-" in seen
    assert not (tmp_path / "cache").exists(), "they are removed with the layers"


def test_on_a_node(build: Callable[..., ImageRecord], tmp_path: Path) -> None:
    build(via="srun", srun_args=("--partition=cpu", "--account=us"))
    seen = (tmp_path / "seen.srun").read_text().splitlines()
    assert seen[:6] == [
        "--nodes=1",
        "--ntasks=1",
        "--partition=cpu",
        "--account=us",
        "enroot",
        "import",
    ]


def test_a_failure_of_srun_is_not_attributed_to_enroot(
    build: Callable[..., ImageRecord], tmp_path: Path, fails: Any
) -> None:
    error = "srun: error: Unable to contact slurm controller"
    (tmp_path / "bin" / "srun").write_text(f"#!/bin/sh\necho '{error}' >&2\nexit 1\n")
    with fails("program-failed") as caught:
        build(via="srun")
    assert (caught.value.key, caught.value.value) == ("srun", 1)
    assert error in caught.value.message


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"FAKE_FAULT": "fails"}, "program-failed"),
        ({"FAKE_FAULT": "cut"}, "image-damaged"),
        ({"FAKE_FAULT": "silent"}, "image-damaged"),
        ({"FAKE_IMAGE": "arm.sqsh"}, "architecture-wrong"),
    ],
    ids=["fails", "cut", "silent", "arm"],
)
def test_the_file_is_checked(
    build: Callable[..., ImageRecord], tmp_path: Path, variables: dict[str, str], code: str
) -> None:
    with pytest.raises(PullError) as caught:
        build(
            {
                name: str(tmp_path / value) if value.endswith("sqsh") else value
                for name, value in variables.items()
            }
        )
    assert (caught.value.code, caught.value.key) == (code, "enroot")
    assert caught.value.hint
    assert not (tmp_path / "x.sqsh").exists()
    assert not [*tmp_path.glob(".*.part")]
    assert build().size > 0, "the next attempt succeeds"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nvcr.io/nvidia/nemo:25.04.01", "docker://nvcr.io#nvidia/nemo:25.04.01"),
        ("nvcr.io#nvidia/nemo:25.04.01", "docker://nvcr.io#nvidia/nemo:25.04.01"),
        ("ubuntu:22.04", "docker://library/ubuntu:22.04"),
        (
            f"nvcr.io/nvidia/nemo@sha256:{'a' * 64}",
            f"docker://nvcr.io#nvidia/nemo@sha256:{'a' * 64}",
        ),
    ],
)
def test_the_spelling_that_every_version_reads(text: str, found: str) -> None:
    assert uri(ImageReference.parse(text)) == found


def test_a_mirror_is_asked_instead_of_the_registry() -> None:
    settings = PullSettings(
        registry_mirrors={"nvcr.io": "mirror.example/ngc", "docker.io": "mirror.example"}
    )

    def asked(text: str) -> str:
        return import_argv(ImageReference.parse(text), "amd64", Path("/x"), settings)[-1]

    assert asked("nvcr.io/nvidia/nemo:1") == "docker://mirror.example#ngc/nvidia/nemo:1"
    assert asked("ubuntu:22.04") == "docker://mirror.example#library/ubuntu:22.04"
    assert asked("ghcr.io/a/b:1") == "docker://ghcr.io#a/b:1"


@pytest.mark.parametrize(("architecture", "name"), [("amd64", "x86_64"), ("arm64", "aarch64")])
def test_the_architecture_is_always_given(architecture: str, name: str) -> None:
    argv = import_argv(ImageReference.parse("a/b:1"), architecture, Path("/x"), PullSettings())
    assert argv[:4] == ["enroot", "import", "-a", name]


def test_a_real_enroot(registry: RealRegistry, tmp_path: Path, home: Path) -> None:
    """If one is on PATH: it imports from our registry the same files as our own stream."""
    if shutil.which("enroot") is None:
        pytest.skip("not here: enroot")
    entries = (file("etc/motd", b"hello"), file("bin/tool", b"tool", mode=0o755))
    registry.push(
        "public/real",
        "1",
        make_index([SampleImage(layers=(Layer(entries=entries),), config={"Env": ["A=1"]})]),
    )
    for builder in ("enroot", "stream"):
        pull(
            registry.reference("public/real", "1"),
            tmp_path / f"{builder}.sqsh",
            architecture="x86_64",
            settings=PullSettings(builder=builder),
            user=PullUser(home=home),
        )
    for name in ("etc/motd", "bin/tool", "etc/environment"):
        both = [
            subprocess.run(
                ["unsquashfs", "-cat", f"{builder}.sqsh", name],
                cwd=tmp_path,
                capture_output=True,
                check=True,
            )
            for builder in ("enroot", "stream")
        ]
        assert both[0].stdout == both[1].stdout
