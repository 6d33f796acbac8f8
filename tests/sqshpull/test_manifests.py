# SPDX-License-Identifier: Apache-2.0
"""Manifests and indexes: the image for an architecture, and errors for what is not an image."""

import json
from dataclasses import replace
from typing import Any

import pytest

from llmb_testing.sample_images import (
    INDEXES,
    MANIFESTS,
    Layer,
    Made,
    SampleImage,
    digest_of,
    make,
    make_index,
)
from llmb_testing.scripted_registry import ScriptedRegistry, Wrong
from sqshpull.errors import PullError
from sqshpull.manifests import (
    IndexEntry,
    architecture_name,
    choose,
    read_index,
    read_manifest,
)
from sqshpull.reference import ImageReference

REFERENCE = ImageReference.parse("registry.example/team/tool:1")
DIGEST = f"sha256:{'0' * 64}"


def listed(*platforms: str) -> tuple[IndexEntry, ...]:
    """An index of images ``os/architecture/variant``, the size of each its number."""
    data = []
    for number, platform in enumerate(platforms):
        words = dict(zip(("os", "architecture", "variant"), platform.split("/"), strict=False))
        data.append(
            {"mediaType": MANIFESTS["oci"], "digest": DIGEST, "size": number, "platform": words}
        )
    found = read_index({"manifests": data}, REFERENCE)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("platforms", "architecture", "chosen"),
    [
        (["linux/amd64", "linux/arm64/v8"], "amd64", 0),
        (["linux/amd64", "linux/arm64/v8"], "arm64", 1),
        (["windows/amd64", "linux/amd64"], "amd64", 1),
        (["linux/amd64/v3", "linux/amd64"], "amd64", 1),
        (["linux/arm64/v9", "linux/arm64/v8"], "arm64", 1),
        (["linux/arm64/v9"], "arm64", 0),
        (["linux/amd64", "unknown/unknown"], "amd64", 0),
        (["/amd64"], "amd64", 0),
    ],
)
def test_the_architecture_is_chosen(platforms: list[str], architecture: str, chosen: int) -> None:
    assert choose(listed(*platforms), architecture, REFERENCE).size == chosen


def test_a_missing_architecture(fails: Any) -> None:
    with fails("architecture-missing") as caught:
        choose(listed("linux/ppc64le", "linux/amd64", "unknown/unknown"), "arm64", REFERENCE)
    assert (caught.value.key, caught.value.value) == (str(REFERENCE), ["ppc64le", "x86_64"])
    with fails("architecture-missing"):
        choose(listed("unknown/unknown"), "arm64", REFERENCE)


def test_names_of_architectures() -> None:
    assert [architecture_name(name) for name in ("x86_64", "aarch64", "amd64", "ppc64le")] == [
        "amd64",
        "arm64",
        "amd64",
        "ppc64le",
    ]


@pytest.mark.parametrize(
    "data",
    [
        {"schemaVersion": 1, "fsLayers": []},
        {"schemaVersion": 2},
        {"config": {"mediaType": "application/vnd.cncf.helm.config.v1+json"}, "layers": []},
        {
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "md5:1"},
            "layers": [],
        },
    ],
    ids=["schema-1", "empty", "helm", "md5"],
)
def test_unusable_manifests(data: dict[str, Any], fails: Any) -> None:
    with fails("image-unusable") as caught:
        read_manifest(data, REFERENCE)
    assert caught.value.key == str(REFERENCE)


def test_a_layer_listed_twice_is_fetched_once(scripted: ScriptedRegistry, client: Any) -> None:
    layer = Layer(tar=b"x" * 1000, compression="none")
    made = make(SampleImage(layers=(layer, layer)))
    manifest = client(scripted.host).manifest(
        ImageReference.parse(scripted.add("a/b", "1", made)), "amd64"
    )
    assert manifest.compressed_bytes == 1000 + manifest.config.size
    assert len(manifest.layers) == 2


def test_a_single_image_is_asked_for_its_architecture(
    scripted: ScriptedRegistry, made: Made, client: Any
) -> None:
    reference = ImageReference.parse(scripted.add("a/b", "1", made))
    registry = client(scripted.host)
    assert registry.manifest(reference, "x86_64").index_digest is None
    with pytest.raises(PullError) as caught:
        registry.manifest(reference, "aarch64")
    assert (caught.value.code, caught.value.value) == ("architecture-missing", ["x86_64"])


def test_an_index_within_an_index(scripted: ScriptedRegistry, made: Made, client: Any) -> None:
    inner = make_index([SampleImage(layers=())], kind="oci")
    reference = ImageReference.parse(scripted.add("a/b", "1", index_of(inner)))
    found = client(scripted.host).manifest(reference, "amd64")
    assert found.digest == inner.children[0].digest
    assert found.index_digest == index_of(inner).digest


def test_indexes_without_end(scripted: ScriptedRegistry, client: Any, fails: Any) -> None:
    index = make_index([SampleImage(layers=())], kind="oci")
    for _ in range(3):
        index = index_of(index)
    with fails("image-unusable", scripted.host):
        client(scripted.host).manifest(
            ImageReference.parse(scripted.add("a/b", "1", index)), "amd64"
        )


def index_of(inner: Made) -> Made:
    entry = {
        "mediaType": inner.media_type,
        "digest": inner.digest,
        "size": len(inner.manifest),
        "platform": {"os": "linux", "architecture": "amd64"},
    }
    content = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    return Made(media_type=INDEXES["oci"], manifest=content, children=(inner,))


@pytest.mark.parametrize("part", ["/manifests/sha256:", "/blobs/"])
def test_what_differs_from_its_digest_is_asked_for_again(
    scripted: ScriptedRegistry, made: Made, client: Any, part: str
) -> None:
    reference = ImageReference.parse(
        scripted.add("a/b", "1", made).rpartition(":")[0] + f"@{made.digest}"
    )
    scripted.next(part, Wrong())
    assert client(scripted.host).manifest(reference, "amd64").digest == digest_of(made.manifest)
    scripted.next(part, *[Wrong()] * 6)
    with pytest.raises(PullError) as caught:
        client(scripted.host).manifest(reference, "amd64")
    assert caught.value.code == "image-damaged"


def test_a_page_instead_of_a_manifest(
    scripted: ScriptedRegistry, made: Made, client: Any, fails: Any
) -> None:
    portal = replace(made, manifest=b"<html>Welcome to the guest network</html>")
    with fails("image-damaged", scripted.host):
        client(scripted.host).manifest(
            ImageReference.parse(scripted.add("a/b", "1", portal)), "amd64"
        )
