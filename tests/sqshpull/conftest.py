# SPDX-License-Identifier: Apache-2.0
"""Fixtures: real registries, one that fails on demand, images, clients, the command, and trees."""

import contextlib
import hashlib
import io
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from llmb_testing.real_registry import Access, RealRegistry, missing_packages
from llmb_testing.sample_images import (
    Kind,
    Layer,
    Made,
    SampleImage,
    file,
    folder,
    make,
    make_index,
)
from llmb_testing.scripted_registry import ScriptedRegistry
from sqshpull.errors import PullError, describe
from sqshpull.layers import FetchedLayer, read_names
from sqshpull.registry import Registry
from sqshpull.settings import PullSettings, PullUser, SilentProgress
from sqshpull.squashfs import write_squashfs

KINDS: Sequence[Kind] = ("docker", "oci")
Client = Callable[..., Registry]
Fails = Callable[..., AbstractContextManager[pytest.ExceptionInfo[PullError]]]
Tree = dict[str, tuple[Any, ...]]
OURS = {"etc/environment", "etc/fstab", "etc/rc", "etc/rc.local"}


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, certificate or credential of the user who runs the tests."""
    for name in [*os.environ]:
        if name.lower().endswith("_proxy") or name.startswith(
            ("SSL_CERT_", "NGC_", "REGISTRY_", "DOCKER_", "ENROOT_")
        ):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Access], RealRegistry]]:
    """A real registry by its kind of access, started on first use; each has ``made``."""
    if missing := missing_packages():
        pytest.skip(
            f"no real registry here: apt-get install --no-install-recommends {' '.join(missing)}"
        )
    with contextlib.ExitStack() as stack:
        running: dict[Access, RealRegistry] = {}

        def get(access: Access) -> RealRegistry:
            if access not in running:
                running[access] = stack.enter_context(
                    RealRegistry(tmp_path_factory.mktemp(access), access)
                )
                fill(running[access])
            return running[access]

        yield get


def fill(registry: RealRegistry) -> None:
    """Push ``team/tool`` for two architectures, ``team/single`` only for arm64, and
    ``public/tool``.
    """
    for kind in KINDS:
        registry.push("team/tool", kind, index_of(kind))
        registry.push("public/tool", kind, index_of(kind))
    registry.push("team/single", "1.0", make(sample("arm64")))


def index_of(kind: Kind) -> Made:
    """An image for amd64 and arm64."""
    return make_index([sample("amd64", kind), sample("arm64", kind)], kind=kind)


@pytest.fixture(params=KINDS)
def index(request: pytest.FixtureRequest) -> tuple[Kind, Made]:
    """The images of team/tool in the real registries, by tag."""
    return request.param, index_of(request.param)


def sample(
    architecture: str = "amd64", kind: Kind = "docker", *, size: int = 100_000
) -> SampleImage:
    """An image of three layers, one for each compression, with different content for each
    architecture.
    """
    content = random.Random(architecture).randbytes(size)
    return SampleImage(
        layers=(
            Layer(entries=(folder("opt"), file("opt/large", content))),
            Layer(
                entries=(file("opt/arch", architecture.encode()),),
                compression="zstd" if kind == "oci" else "gzip",
            ),
            Layer(entries=(file("opt/plain", b"plain"),), compression="none"),
        ),
        architecture=architecture,
        variant="v8" if architecture == "arm64" else None,
        config={"Env": [f"ARCH={architecture}"]},
        kind=kind,
    )


@pytest.fixture
def made() -> Made:
    """An image for amd64."""
    return make(sample())


@pytest.fixture
def scripted() -> Iterator[ScriptedRegistry]:
    """A registry that fails on demand."""
    with ScriptedRegistry() as registry:
        yield registry


@pytest.fixture
def slept() -> list[float]:
    """The seconds that the client would sleep; it does not."""
    return []


@pytest.fixture
def client(home: Path, slept: list[float]) -> Iterator[Client]:
    """Creates clients for a host that do not sleep; keywords are arguments of Registry."""
    with contextlib.ExitStack() as stack:

        def make_one(host: str, **keywords: object) -> Registry:
            user = PullUser(environ=os.environ, home=home)
            given = {"user": user, "sleep": slept.append, **keywords}
            return stack.enter_context(Registry(host, **given))  # type: ignore[arg-type]

        yield make_one


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


def read(made: Made) -> list[tuple[FetchedLayer, Any]]:
    """The layers of an image, as if downloaded."""
    found = []
    for number, item in enumerate(made.layers, 1):
        layer = FetchedLayer(
            label=f"layer {number}", file=io.BytesIO(made.blobs[item["digest"]]), size=item["size"]
        )
        found.append((layer, read_names(layer)))
    return found


@pytest.fixture
def squashed(tmp_path: Path, programs: None) -> Callable[..., Path]:
    """Builds the squashfs of an image from its layers; keywords are PullSettings."""

    def build(image: SampleImage, name: str = "image.sqsh", **settings: Any) -> Path:
        made = make(image)
        config = json.loads(made.blobs[json.loads(made.manifest)["config"]["digest"]])
        target = tmp_path / name
        target.unlink(missing_ok=True)
        write_squashfs(
            read(made), config, target, PullSettings(**settings), SilentProgress(), tmp_path / "log"
        )
        return target

    return build


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[[Path], Tree]:
    """The tree in a squashfs, by unsquashfs."""

    def unpack(image: Path) -> Tree:
        into = tmp_path / f"{image.name}.tree"
        done = subprocess.run(
            ["unsquashfs", "-n", "-d", into, image], capture_output=True, text=True, check=False
        )
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
    names = [
        name
        for name in os.listxattr(path, follow_symlinks=False)
        if "rootlesscontainers" not in name
    ]
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
    """Runs the real sqshpull in an empty folder; keywords are variables."""

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
    """The command line of sqshpull."""
    return [str(Path(sys.executable).with_name("sqshpull")), *map(str, arguments)]


@pytest.fixture
def image_argv() -> Callable[..., list[str]]:
    """The command line of sqshpull."""
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
def fails(wording: Callable[..., None]) -> Fails:
    """Expects an PullError with this code, and compares its text; the host that it names is
    hidden.
    """

    @contextlib.contextmanager
    def check(code: str, *hosts: str) -> Iterator[pytest.ExceptionInfo[PullError]]:
        with pytest.raises(PullError) as caught:
            yield caught
        assert caught.value.code == code
        hidden = {host: f"registry{number or ''}.example" for number, host in enumerate(hosts)}
        names = {re.sub(r"\W", "_", host).upper(): "REGISTRY_EXAMPLE" for host in hosts}
        wording("sqshpull", describe(caught.value), {**hidden, **names})

    return check
