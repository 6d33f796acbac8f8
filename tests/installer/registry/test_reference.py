# SPDX-License-Identifier: Apache-2.0
"""References: every spelling is one reference, and what is none says why."""

import pytest

from llmb.errors import UsageError
from llmb_installer.registry import Reference

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
    assert str(Reference.parse(text)) == canonical


def test_a_digest_counts_more_than_a_tag() -> None:
    assert Reference.parse(f"a/b:1@{DIGEST}").version == DIGEST
    assert Reference.parse("a/b:1").version == "1"
    assert Reference.parse(f"a/b@{DIGEST}").tag is None


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "write one like nvcr.io/nvidia/nemo:25.04.01"),
        ("nvcr.io/NVIDIA/nemo:1", "names are in lower case: nvidia/nemo"),
        ("nvcr.io/nvidia/nemo:", "there is no tag after the ':'"),
        ("nvcr.io/nvidia/nemo:a b", "'a b' cannot be a tag"),
        ("nvcr.io/nvidia/nemo@sha256:12", "a digest is sha256: and 64 hexadecimal digits"),
        ("nvcr.io/nvidia//nemo", "write one like"),
        ("/images/nemo.sqsh", "write one like"),
        ("https://nvcr.io/nvidia/nemo:1", "leave the protocol out"),
        ("docker://$oauthtoken@nvcr.io#nvidia/nemo:1", "leave the user out"),
        ("nv cr.io/nvidia/nemo:1", "cannot be a registry's name"),
        ("../nemo:1", "'..' cannot be a registry's name"),
    ],
)
def test_what_is_none(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Reference.parse(text)
    assert hint in (caught.value.hint or "")
    assert f"'{text}'" in caught.value.message
