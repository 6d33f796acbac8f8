# SPDX-License-Identifier: Apache-2.0
"""References: every spelling is one reference, and an invalid one gets its reason."""

from typing import Any

import pytest

from sqshpull.errors import PullInputError
from sqshpull.reference import ImageReference

DIGEST = f"sha256:{'0a' * 32}"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("nvcr.io/nvidia/nemo:25.04.01", "nvcr.io/nvidia/nemo:25.04.01"),
        ("nvcr.io#nvidia/nemo:25.04.01", "nvcr.io/nvidia/nemo:25.04.01"),
        ("docker://nvcr.io#nvidia/nemo:25.04.01", "nvcr.io/nvidia/nemo:25.04.01"),
        ("docker://nvcr.io/nvidia/nemo:25.04.01 ", "nvcr.io/nvidia/nemo:25.04.01"),
        (f"nvcr.io/nvidia/nemo@{DIGEST}", f"nvcr.io/nvidia/nemo@{DIGEST}"),
        (f"nvcr.io/nvidia/nemo:25.04.01@{DIGEST}", f"nvcr.io/nvidia/nemo:25.04.01@{DIGEST}"),
        ("ubuntu:22.04", "docker.io/library/ubuntu:22.04"),
        ("ubuntu", "docker.io/library/ubuntu:latest"),
        ("docker.io/ubuntu:22.04", "docker.io/library/ubuntu:22.04"),
        ("index.docker.io/library/ubuntu:22.04", "docker.io/library/ubuntu:22.04"),
        ("registry-1.docker.io#library/ubuntu:22.04", "docker.io/library/ubuntu:22.04"),
        ("nvidia/cuda:12.8.1-base", "docker.io/nvidia/cuda:12.8.1-base"),
        ("localhost/tool:1", "localhost/tool:1"),
        ("127.0.0.1:5000/team/tool:1_a.B-c", "127.0.0.1:5000/team/tool:1_a.B-c"),
        ("[::1]:5000/tool:1", "[::1]:5000/tool:1"),
        ("cluster#team/tool:1", "cluster/team/tool:1"),
        ("GHCR.io/a__b/c--d.e:1", "ghcr.io/a__b/c--d.e:1"),
    ],
)
def test_spellings(text: str, canonical: str) -> None:
    assert str(ImageReference.parse(text)) == canonical


def test_a_digest_overrides_a_tag() -> None:
    assert ImageReference.parse(f"a/b:1@{DIGEST}").version == DIGEST
    assert ImageReference.parse("a/b:1").version == "1"
    assert ImageReference.parse(f"a/b@{DIGEST}").tag is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nvcr.io/NVIDIA/nemo:1",
        "nvcr.io/nvidia/nemo:",
        "nvcr.io/nvidia/nemo:a b",
        "nvcr.io/nvidia/nemo@sha256:12",
        "nvcr.io/nvidia//nemo",
        "/images/nemo.sqsh",
        "https://nvcr.io/nvidia/nemo:1",
        "docker://$oauthtoken@nvcr.io#nvidia/nemo:1",
        "nv cr.io/nvidia/nemo:1",
        "../nemo:1",
    ],
)
def test_invalid_references(text: str, fails: Any) -> None:
    with fails("reference-invalid") as caught:
        ImageReference.parse(text)
    assert isinstance(caught.value, PullInputError)
    assert caught.value.value == text
