# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of images: a registry on loopback, images flattened without one, comparison of trees."""

import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llmb.errors import LlmbError, describe
from llmb_installer.execution.runner import Runner
from llmb_installer.images.layer import Layer as ReadLayer, read_names
from llmb_installer.images.squash import BuildSettings, write_squashfs
from llmb_installer.step import Context, Lines
from llmb_testing.real_registry import RealRegistry, missing_packages
from llmb_testing.sample_images import Made, SampleImage, make

Tree = dict[str, tuple[Any, ...]]
OURS = {"etc/environment", "etc/fstab", "etc/rc", "etc/rc.local"}


@pytest.fixture(scope="session")
def programs() -> None:
    """Skips the test if the squashfs programs are missing."""
    missing = [program for program in ("mksquashfs", "unsquashfs") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not here: {', '.join(missing)} (Debian's squashfs-tools)")


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory, programs: None) -> Iterator[RealRegistry]:
    """A real, public registry on loopback."""
    if missing := missing_packages():
        pytest.skip(f"not here: {', '.join(missing)} (packages of Debian)")
    with RealRegistry(tmp_path_factory.mktemp("registry")) as started:
        yield started


def read(made: Made) -> list[tuple[ReadLayer, Any]]:
    """The layers of an image, as if downloaded."""
    found = []
    for number, item in enumerate(made.layers, 1):
        layer = ReadLayer(label=f"layer {number}", file=io.BytesIO(made.blobs[item["digest"]]), size=item["size"])
        found.append((layer, read_names(layer)))
    return found


@pytest.fixture
def squashed(tmp_path: Path, programs: None) -> Callable[..., Path]:
    """Builds the squashfs of an image from its layers; keywords are BuildSettings."""

    def build(image: SampleImage, name: str = "image.sqsh", **settings: Any) -> Path:
        made = make(image)
        config = json.loads(made.blobs[json.loads(made.manifest)["config"]["digest"]])
        target = tmp_path / name
        target.unlink(missing_ok=True)
        write_squashfs(read(made), config, target, BuildSettings(**settings), Lines(), tmp_path / "log")
        return target

    return build


@pytest.fixture
def step_context(tmp_path: Path) -> Callable[..., Context]:
    """Where and how a step is built; keywords override its fields."""
    context = Context(
        install=tmp_path, environ=os.environ, home=tmp_path, log=tmp_path / "log", progress=Lines(), runner=Runner()
    )
    return partial(replace, context)


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[[Path], Tree]:
    """The tree in a squashfs, by unsquashfs."""

    def unpack(image: Path) -> Tree:
        into = tmp_path / f"{image.name}.tree"
        done = subprocess.run(["unsquashfs", "-n", "-d", into, image], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return tree_of(into)

    return unpack


def tree_of(folder: Path) -> Tree:
    """Everything below a folder: type and mode, owner, time, links, content and attributes.

    Owners and setuid only as root: unsquashfs gives an ordinary user neither.
    """
    found: Tree = {}
    for above, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(above) / name
            found[str(path.relative_to(folder))] = _look(path)
    return found


def _look(path: Path) -> tuple[Any, ...]:
    state = path.lstat()
    mode = state.st_mode
    is_root = os.geteuid() == 0
    owner = (state.st_uid, state.st_gid) if is_root else ()
    content: str | None = None
    if stat.S_ISLNK(mode):
        content = str(path.readlink())
    elif stat.S_ISREG(mode):
        if not os.access(path, os.R_OK):
            path.chmod(0o400)
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    links = state.st_nlink if stat.S_ISREG(mode) else 0
    names = [name for name in os.listxattr(path, follow_symlinks=False) if "rootlesscontainers" not in name]
    attributes = {name: os.getxattr(path, name, follow_symlinks=False) for name in names}
    shown = mode if is_root else mode & ~(stat.S_ISUID | stat.S_ISGID)
    return (
        stat.filemode(shown),
        owner,
        None if stat.S_ISDIR(mode) else int(state.st_mtime),
        links,
        content,
        attributes,
    )


@pytest.fixture
def image_command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the real llmb-install image in an empty folder; keywords are variables."""

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command_line(*arguments),
            env={**os.environ, **variables},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return run


def command_line(*arguments: object) -> list[str]:
    """The command line of llmb-install image."""
    return [str(Path(sys.executable).with_name("llmb-install")), "image", *map(str, arguments)]


@pytest.fixture
def image_argv() -> Callable[..., list[str]]:
    """The command line of llmb-install image."""
    return command_line


@pytest.fixture
def as_tree() -> Callable[[Path], Tree]:
    """The contents of a folder, for comparison."""
    return tree_of


@pytest.fixture
def ours() -> set[str]:
    """The files that every image gets."""
    return OURS


@pytest.fixture
def fails(wording: Callable[..., None]) -> Callable[..., AbstractContextManager[pytest.ExceptionInfo[LlmbError]]]:
    """Expects an LlmbError with this code, and compares its text; ``hosts`` are hidden in it."""

    @contextmanager
    def check(code: str, *hosts: str) -> Iterator[pytest.ExceptionInfo[LlmbError]]:
        with pytest.raises(LlmbError) as caught:
            yield caught
        assert caught.value.code == code
        wording("llmb-install image", describe(caught.value), dict.fromkeys(hosts, "registry.example"))

    return check
