# SPDX-License-Identifier: Apache-2.0
"""Tests of the command llmb-install image."""

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb_testing.real_registry import RealRegistry
from llmb_testing.sample_images import Layer, SampleImage, file, make_index

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def reference(registry: RealRegistry) -> str:
    layer = Layer(entries=(file("f", b"1"),))
    made = [SampleImage(layers=(layer,), architecture=name) for name in ("amd64", "arm64")]
    registry.push("public/command", "1.0", make_index(made))
    return registry.reference("public/command", "1.0")


def test_from_nothing_to_an_image(image_command: Run, reference: str, tmp_path: Path) -> None:
    done = image_command(reference, "--arch", "aarch64")
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 2, "fetching, writing"
    file, about = done.stdout.split(": ", 1)
    assert (file, about.split(",")[0]) == ("public+command+1.0.sqsh", "4.1 kB")
    assert "aarch64, sha256:" in about
    seen = {path.name for path in tmp_path.iterdir() if ".lock." not in path.name}
    assert seen == {"public+command+1.0.sqsh", "public+command+1.0.sqsh.json"}
    again = image_command(reference, "--arch", "aarch64")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.startswith(done.stdout.rstrip())


def test_folder_and_architecture_of_the_install_directory(
    image_command: Run, reference: str, cluster: Callable[..., Path]
) -> None:
    folder = cluster("slurm", install={"node_architecture": "aarch64"})
    done = image_command(reference, "--install", folder)
    assert done.returncode == 0, done.stderr
    record = json.loads((folder / "images" / "public+command+1.0.sqsh.json").read_text())
    assert record["architecture"] == "arm64"


def test_check_finds_what_is_wrong(image_command: Run, reference: str, tmp_path: Path) -> None:
    words = (reference, "-o", "x.sqsh", "--arch", "x86_64")
    missing = image_command(*words, "--check")
    assert (missing.returncode, missing.stderr.startswith("error: x.sqsh: ")) == (1, True)
    assert not (tmp_path / "x.sqsh").exists()
    image_command(*words)
    whole = image_command(*words, "--check")
    assert whole.returncode == 0, whole.stderr
    assert reference in whole.stdout
    other = image_command(reference, "-o", "x.sqsh", "--arch", "aarch64", "--check")
    assert other.returncode == 1
    assert "x86_64" in other.stderr
    assert "aarch64" in other.stderr
    with (tmp_path / "x.sqsh").open("r+b") as stream:
        stream.write(b"HSQS")
    broken = image_command(*words, "--check")
    assert broken.returncode == 1
    assert "error: x.sqsh: " in broken.stderr
    again = ["llmb-install", "image", *words]
    assert shlex.split(broken.stderr)[-len(again) :] == again, "the complete command"


def test_check_reports_a_moved_tag(image_command: Run, registry: RealRegistry) -> None:
    moving = registry.reference("public/command-moves", "1")
    for content in (b"1", b"2"):
        image = SampleImage(layers=(Layer(entries=(file("f", content),)),))
        registry.push("public/command-moves", "1", make_index([image]))
        image_command(moving, "-o", "x.sqsh", "--arch", "x86_64")
    checked = image_command(moving, "-o", "x.sqsh", "--arch", "x86_64", "--check")
    assert checked.returncode == 1
    again = ["llmb-install", "image", moving, "-o", "x.sqsh", "--arch", "x86_64", "--update"]
    assert shlex.split(checked.stderr.partition("hint: ")[2])[-len(again) :] == again, (
        "the complete command"
    )


def test_a_mirror(
    image_command: Run, registry: RealRegistry, reference: str, tmp_path: Path
) -> None:
    given = ("--mirror", f"nvcr.io={registry.host}/public", "-o", "x.sqsh", "--arch", "x86_64")
    done = image_command("nvcr.io/command:1.0", *given)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "x.sqsh.json").read_text())
    assert record["reference"] == "nvcr.io/command:1.0", "as it was given"


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (("a/b:1", "--mirror", "docker.io"), 2, "--mirror docker.io"),
        (("a/b:1", "--arch", "sparc"), 2, "--arch sparc"),
        (("a/b:1", "--level", "99"), 2, "--level"),
        (("Not A Reference",), 2, "'Not A Reference'"),
        (("a/b:1", "--compression", "best"), 2, "'best'"),
        (("127.0.0.1:9/a:1", "--arch", "x86_64"), 1, "127.0.0.1:9"),
    ],
)
def test_wrong_usage(image_command: Run, words: tuple[str, ...], code: int, named: str) -> None:
    done = image_command(*words)
    assert done.returncode == code
    assert named in done.stderr
    assert "Traceback" not in done.stderr
