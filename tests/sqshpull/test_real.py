# SPDX-License-Identifier: Apache-2.0
"""Against a real registry: open, behind passwords, behind tokens over TLS; docker's and OCI's
forms.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmb_testing.real_registry import PASSWORD, USER, Access, RealRegistry
from llmb_testing.sample_images import Kind, Made
from sqshpull.errors import PullError
from sqshpull.reference import ImageReference
from sqshpull.registry import Registry, look_up
from sqshpull.settings import PullUser, RegistrySettings

Real = Callable[[Access], RealRegistry]


@pytest.fixture(params=["open", "basic", "token"])
def registry(request: pytest.FixtureRequest, real: Real) -> RealRegistry:
    """Each kind of registry."""
    return real(request.param)


@pytest.fixture(params=["basic", "token"])
def guarded(request: pytest.FixtureRequest, real: Real) -> RealRegistry:
    """Each kind of registry that requires credentials."""
    return real(request.param)


def failed(
    registry: RealRegistry, repository: str, tag: str, home: Path, **environ: str
) -> PullError:
    reference = registry.reference(repository, tag)
    with pytest.raises(PullError) as caught:
        look_up(
            reference,
            "amd64",
            user=PullUser(environ=environ, home=home),
            settings=registry.settings,
        )
    return caught.value


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_an_image_is_found_and_fetched(
    registry: RealRegistry, index: tuple[Kind, Made], home: Path, tmp_path: Path, architecture: str
) -> None:
    kind, made = index
    wanted = made.children[architecture == "aarch64"]
    reference = registry.reference("team/tool", kind)
    manifest = look_up(
        reference,
        architecture,
        user=PullUser(environ=registry.login(), home=home),
        settings=registry.settings,
    )
    assert (manifest.digest, manifest.index_digest) == (wanted.digest, made.digest)
    assert [layer.digest for layer in manifest.layers] == [
        layer["digest"] for layer in wanted.layers
    ]
    assert manifest.compressed_bytes == sum(len(blob) for blob in wanted.blobs.values())
    assert manifest.image_bytes > manifest.compressed_bytes
    gained: list[int] = []
    with Registry(
        registry.host,
        user=PullUser(environ=registry.login(), home=home),
        settings=registry.settings,
    ) as client:
        blobs = [(layer, tmp_path / layer.digest) for layer in manifest.layers]
        for layer, path in blobs:
            client.fetch_blob("team/tool", layer, path, gained.append)
        assert client.config(manifest.reference, manifest.config)["config"] == {
            "Env": [f"ARCH={manifest.architecture}"]
        }
    for layer, path in blobs:
        assert path.read_bytes() == wanted.blobs[layer.digest]
    assert sum(gained) == sum(layer.size for layer in manifest.layers)


def test_by_digest(registry: RealRegistry, index: tuple[Kind, Made], home: Path) -> None:
    _, made = index
    for digest in (made.digest, made.children[0].digest):
        text = f"{registry.host}/team/tool@{digest}"
        checked = look_up(
            text,
            "amd64",
            user=PullUser(environ=registry.login(), home=home),
            settings=registry.settings,
        )
        assert checked.digest == made.children[0].digest


def test_a_part_is_continued(
    registry: RealRegistry, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = ImageReference.parse(registry.reference("team/tool", "docker"))
    answers: list[httpx.Response] = []

    def ask(*question: Any) -> httpx.Response:
        answers.append(really_ask(*question))
        return answers[-1]

    with Registry(
        registry.host,
        user=PullUser(environ=registry.login(), home=home),
        settings=registry.settings,
    ) as client:
        really_ask = client.open
        monkeypatch.setattr(client, "open", ask)
        layer = client.manifest(reference, "amd64").layers[0]
        client.fetch_blob("team/tool", layer, tmp_path / "whole", lambda _: None)
        content = (tmp_path / "whole").read_bytes()
        (tmp_path / "blob.part").write_bytes(content[:70_000])
        client.fetch_blob("team/tool", layer, tmp_path / "blob", lambda _: None)
    assert (tmp_path / "blob").read_bytes() == content
    assert answers[-1].status_code == 206
    assert answers[-1].headers["Content-Range"] == f"bytes 70000-{layer.size - 1}/{layer.size}"


def test_missing_images(registry: RealRegistry, home: Path) -> None:
    login = registry.login()
    tag, repository = (
        failed(registry, *words, home, **login)
        for words in (("team/tool", "dockr"), ("team/none", "1"))
    )
    assert tag.code == repository.code == "image-missing"
    assert "'docker'" in str(tag.hint), "the nearest tag"
    assert "team/none" in repository.message


def test_another_architecture(registry: RealRegistry, home: Path) -> None:
    error = failed(registry, "team/single", "1.0", home, **registry.login())
    assert (error.code, error.value) == ("architecture-missing", ["aarch64"])


def test_without_credentials(guarded: RealRegistry, home: Path) -> None:
    assert failed(guarded, "team/tool", "docker", home).code == "credentials-missing"


def test_with_wrong_ones(guarded: RealRegistry, home: Path) -> None:
    error = failed(guarded, "team/tool", "docker", home, **guarded.login(password="guess"))
    assert (error.code, error.key) == ("credentials-refused", guarded.host)
    assert re.search(rf"'{USER}' from .*REGISTRY_", error.message)
    assert "guess" not in f"{error.message} {error.hint}"


def test_credentials_of_docker_and_enroot(guarded: RealRegistry, home: Path) -> None:
    reference = guarded.reference("team/tool", "docker")
    files = {
        ".docker/config.json": json.dumps(
            {"auths": {guarded.host: {"username": USER, "password": PASSWORD}}}
        ),
        ".config/enroot/.credentials": f"machine 127.0.0.1 login {USER} password {PASSWORD}",
    }
    for name, text in files.items():
        path = home / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        assert (
            str(
                look_up(
                    reference,
                    "amd64",
                    user=PullUser(environ={}, home=home),
                    settings=guarded.settings,
                ).reference
            )
            == reference
        )
        path.unlink()


def test_the_public_part_needs_none(real: Real, home: Path) -> None:
    registry = real("token")
    reference = registry.reference("public/tool", "oci")
    assert (
        str(
            look_up(
                reference, "amd64", user=PullUser(environ={}, home=home), settings=registry.settings
            ).reference
        )
        == reference
    )
    assert registry.tokens is not None
    assert registry.tokens.asked[-1].user is None


def test_a_certificate_that_is_not_trusted(real: Real, home: Path) -> None:
    registry = real("token")
    reference = registry.reference("public/tool", "oci")
    with pytest.raises(PullError) as caught:
        look_up(reference, "amd64", user=PullUser(environ={}, home=home))
    assert (caught.value.code, caught.value.value) == ("host-unreachable", "certificate")
    assert "--ca-bundle" in (caught.value.hint or "")
    assert registry.certificate is not None
    trusted = {"SSL_CERT_FILE": str(registry.certificate.path)}
    assert (
        str(look_up(reference, "amd64", user=PullUser(environ=trusted, home=home)).reference)
        == reference
    )


def test_a_mirror_is_asked_instead_of_its_registry(
    real: Real, index: tuple[Kind, Made], home: Path
) -> None:
    registry, (kind, made) = real("open"), index
    registry.push("hub/library/tool", kind, made)
    settings = RegistrySettings(
        registry_mirrors={"docker.io": f"{registry.host}/hub", "nvcr.io": registry.host}
    )
    for text in (f"tool:{kind}", f"nvcr.io/team/tool:{kind}"):
        checked = look_up(text, "amd64", user=PullUser(environ={}, home=home), settings=settings)
        assert checked.index_digest == made.digest
        assert checked.reference == ImageReference.parse(text)
