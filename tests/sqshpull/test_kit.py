# SPDX-License-Identifier: Apache-2.0
"""The kit itself: other tools read its images, and its registries end with everything that they
started.
"""

import io
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb_testing import sample_images
from llmb_testing.real_registry import Access, RealRegistry
from llmb_testing.sample_images import Kind, Layer, Made, SampleImage, TarMember


def entries(layer: Layer) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(sample_images.tar_of(layer))) as archive:
        return {member.name: member for member in archive}


def test_entries_are_written_as_given() -> None:
    layer = Layer(
        entries=(
            sample_images.folder("a", mode=0o700),
            sample_images.file("../out", b"x", mode=0o4755, pax={"SCHILY.xattr.user.k": "v"}),
            sample_images.symlink("l", "/etc/passwd"),
            sample_images.hardlink("h", "nowhere"),
            sample_images.whiteout("a/b"),
            sample_images.whiteout("top"),
            sample_images.opaque("a"),
            TarMember(name="null", type=tarfile.CHRTYPE, device=(1, 3), uid=5, gid=6),
        )
    )
    found = entries(layer)
    assert [*found] == ["a", "../out", "l", "h", "a/.wh.b", ".wh.top", "a/.wh..wh..opq", "null"]
    assert (found["../out"].mode, found["../out"].pax_headers["SCHILY.xattr.user.k"]) == (
        0o4755,
        "v",
    )
    assert (found["l"].linkname, found["h"].linkname) == ("/etc/passwd", "nowhere")
    assert (found["null"].devmajor, found["null"].devminor, found["null"].uid) == (1, 3, 5)


@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
def test_the_same_content_is_the_same_image(compression: sample_images.Compression) -> None:
    image = SampleImage(
        layers=(Layer(entries=(sample_images.file("a", b"x" * 1000),), compression=compression),)
    )
    assert sample_images.make(image) == sample_images.make(image)


def test_others_can_read_the_images(
    real: Callable[[Access], RealRegistry], index: tuple[Kind, Made], tmp_path: Path
) -> None:
    if shutil.which("skopeo") is None:
        pytest.skip("no skopeo here: apt-get install --no-install-recommends skopeo")
    kind, made = index
    source = f"docker://{real('open').reference('team/tool', kind)}"
    argv = [
        "skopeo",
        "--override-arch",
        "arm64",
        "copy",
        "--src-tls-verify=false",
        source,
        f"dir:{tmp_path}/kept",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    for digest, blob in made.children[1].blobs.items():
        assert (tmp_path / "kept" / digest.removeprefix("sha256:")).read_bytes() == blob


def test_a_registry_ends_with_its_context(
    real: Callable[[Access], RealRegistry], tmp_path: Path
) -> None:
    real("open")  # skips where there is none
    with RealRegistry(tmp_path / "r") as registry:
        process = registry.process
        assert process is not None
        assert process.poll() is None
    assert process.poll() is not None


def test_a_registry_in_a_folder_used_before_has_its_own_address(
    real: Callable[[Access], RealRegistry], tmp_path: Path
) -> None:
    real("open")  # skips where there is none
    stale = 'msg="listening on 127.0.0.1:1"\n'
    (tmp_path / "registry.log").write_text(stale)
    with RealRegistry(tmp_path) as registry:
        assert registry.host != "127.0.0.1:1"
        assert registry.log.read_text().startswith(stale)
