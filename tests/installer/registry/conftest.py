# SPDX-License-Identifier: Apache-2.0
"""Fixtures: real registries, one that fails on demand, images, and clients."""

import contextlib
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from llmb.errors import LlmbError, describe
from llmb_installer.registry.client import Registry
from llmb_testing.real_registry import Access, RealRegistry, missing_packages
from llmb_testing.sample_images import Kind, Layer, Made, SampleImage, file, folder, make, make_index
from llmb_testing.scripted_registry import ScriptedRegistry

KINDS: Sequence[Kind] = ("docker", "oci")
Client = Callable[..., Registry]
Fails = Callable[..., AbstractContextManager[pytest.ExceptionInfo[LlmbError]]]


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, certificate or credential of the user who runs the tests."""
    for name in [*os.environ]:
        if name.lower().endswith("_proxy") or name.startswith(("SSL_CERT_", "NGC_", "REGISTRY_", "DOCKER_", "ENROOT_")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Access], RealRegistry]]:
    """A real registry by its kind of access, started on first use; each has ``made``."""
    if missing := missing_packages():
        pytest.skip(f"no real registry here: apt-get install --no-install-recommends {' '.join(missing)}")
    with contextlib.ExitStack() as stack:
        running: dict[Access, RealRegistry] = {}

        def get(access: Access) -> RealRegistry:
            if access not in running:
                running[access] = stack.enter_context(RealRegistry(tmp_path_factory.mktemp(access), access))
                fill(running[access])
            return running[access]

        yield get


def fill(registry: RealRegistry) -> None:
    """Push ``team/tool`` for two architectures, ``team/single`` only for arm64, and ``public/tool``."""
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


def sample(architecture: str = "amd64", kind: Kind = "docker", *, size: int = 100_000) -> SampleImage:
    """An image of three layers, one for each compression, with different content for each architecture."""
    content = random.Random(architecture).randbytes(size)
    return SampleImage(
        layers=(
            Layer(entries=(folder("opt"), file("opt/large", content))),
            Layer(entries=(file("opt/arch", architecture.encode()),), compression="zstd" if kind == "oci" else "gzip"),
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
            given = {"environ": os.environ, "home": home, "sleep": slept.append, **keywords}
            return stack.enter_context(Registry(host, **given))  # type: ignore[arg-type]

        yield make_one


@pytest.fixture
def fails(wording: Callable[..., None]) -> Fails:
    """Expects an LlmbError with this code, and compares its text; the host that it names is hidden."""

    @contextlib.contextmanager
    def check(code: str, *hosts: str) -> Iterator[pytest.ExceptionInfo[LlmbError]]:
        with pytest.raises(LlmbError) as caught:
            yield caught
        assert caught.value.code == code
        hidden = {host: f"registry{number or ''}.example" for number, host in enumerate(hosts)}
        names = {re.sub(r"\W", "_", host).upper(): "REGISTRY_EXAMPLE" for host in hosts}
        wording("llmb-install image", describe(caught.value), {**hidden, **names})

    return check
