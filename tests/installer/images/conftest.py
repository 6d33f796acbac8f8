# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of images: registries on loopback, an image, and the command."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from llmb.errors import LlmbError, describe
from llmb_testing.real_registry import RealRegistry, missing_packages
from llmb_testing.sample_images import Layer, Made, SampleImage, file, make
from llmb_testing.scripted_registry import ScriptedRegistry


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


@pytest.fixture
def scripted() -> Iterator[ScriptedRegistry]:
    """A registry that fails on demand."""
    with ScriptedRegistry() as registry:
        yield registry


@pytest.fixture
def made() -> Made:
    """An image for amd64."""
    return make(SampleImage(layers=(Layer(entries=(file("f", b"1"),)),)))


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
def fails(
    wording: Callable[..., None],
) -> Callable[..., AbstractContextManager[pytest.ExceptionInfo[LlmbError]]]:
    """Expects an LlmbError with this code, and compares its text; the host that it names is
    hidden.
    """

    @contextlib.contextmanager
    def check(code: str, *hosts: str) -> Iterator[pytest.ExceptionInfo[LlmbError]]:
        with pytest.raises(LlmbError) as caught:
            yield caught
        assert caught.value.code == code
        hidden = {host: f"registry{number or ''}.example" for number, host in enumerate(hosts)}
        names = {re.sub(r"\W", "_", host).upper(): "REGISTRY_EXAMPLE" for host in hosts}
        wording("llmb-install image", describe(caught.value), {**hidden, **names})

    return check
