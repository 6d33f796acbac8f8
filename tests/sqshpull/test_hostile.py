# SPDX-License-Identifier: Apache-2.0
"""Tests of malicious layers: handled correctly, or rejected with the layer named."""

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb_testing.sample_images import (
    Layer,
    SampleImage,
    TarMember,
    file,
    folder,
    hardlink,
    symlink,
    whiteout,
)
from sqshpull.errors import PullError
from sqshpull.tar import FILE, Attributes, header

BASE = Layer(
    entries=(
        folder("etc"),
        file("etc/passwd", b"root"),
        symlink("loop", "loop"),
        file("plain", b"1"),
    )
)


@pytest.mark.parametrize(
    ("entries", "value"),
    [
        ((file("../escape", b"x"),), "escape"),
        ((file("a/../../escape", b"x"),), "escape"),
        ((folder(".."),), "escape"),
        ((hardlink("passwd", "../../etc/passwd"),), "escape"),
        ((hardlink("new", "not-there"),), "link"),
        ((hardlink("new", "etc"),), "link"),
        ((file("loop/x", b"x"),), "loop"),
        ((file("plain/x", b"x"),), "folder"),
        ((file("n" * 300, b"x"),), "name"),
        ((file("d" * 200 + "/" + "n" * 256, b"x"),), "name"),
        ((whiteout("."),), "whiteout"),
        ((TarMember(name="./", type=tarfile.REGTYPE),), "name"),
        ((TarMember(name="odd", type=b"Z"),), "type"),
        ((file("/".join(["long"] * 1000), b"x"),), "size"),
    ],
)
def test_rejected_layers(
    squashed: Callable[..., Path], entries: tuple[TarMember, ...], value: str, fails: Any
) -> None:
    with fails("layer-rejected") as caught:
        squashed(SampleImage(layers=(BASE, Layer(entries=entries))))
    assert (caught.value.key, caught.value.value) == ("layer 2", value)


def test_links_out_of_the_image_stay_in_it(
    squashed: Callable[..., Path], unpacked: Callable[[Path], Any], tmp_path: Path
) -> None:
    """A path through a link that leads out ends where it would in a container: below the image's
    own root.
    """
    outside = tmp_path / "outside"
    outside.mkdir()
    layers = (
        Layer(entries=(symlink("up", "../../../../etc"), symlink("host", str(outside)))),
        Layer(
            entries=(file("up/shadow", b"x"), file("host/pwned", b"x"), file("/etc/absolute", b"x"))
        ),
    )
    found = unpacked(squashed(SampleImage(layers=layers)))
    assert {"etc/shadow", "etc/absolute", f"{str(outside)[1:]}/pwned"} <= found.keys()
    assert not [*outside.iterdir()]


def test_a_link_and_a_path_through_it_in_one_layer(
    squashed: Callable[..., Path], unpacked: Callable[[Path], Any]
) -> None:
    entries = (
        symlink("a", "b"),
        file("a/x", b"1"),
        file("twice", b"1"),
        file("twice", b"2", mode=0o600),
    )
    found = unpacked(squashed(SampleImage(layers=(Layer(entries=entries),))))
    assert found["b/x"][0] == "-rw-r--r--"
    assert found["a"][4] == "b"
    assert found["twice"][0] == "-rw-------", "the later one of two"


def test_a_decompression_bomb_is_rejected(squashed: Callable[..., Path]) -> None:
    """A few kilobytes that decompress to more than is plausible for a layer of their size."""
    large = header(b"zeros", FILE, 2**42, Attributes())
    with pytest.raises(PullError) as caught:
        squashed(SampleImage(layers=(BASE, Layer(tar=large + bytes(4096)))))
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "layer-rejected",
        "layer 2",
        "size",
    )
    assert "1,073,741,824" in caught.value.message


def test_a_sparse_bomb_is_rejected(squashed: Callable[..., Path]) -> None:
    pax = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(2**50)}
    entry = TarMember(name="sparse", content=b"0\n".ljust(512, b"\0"), pax=pax)
    with pytest.raises(PullError) as caught:
        squashed(SampleImage(layers=(BASE, Layer(entries=(entry,)))))
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "layer-rejected",
        "layer 2",
        "size",
    )


@pytest.mark.parametrize("sparse", ["9,9", "5,1,0,1", "0,99999999999", "1,x", "1"])
def test_a_damaged_sparse_map_is_found(squashed: Callable[..., Path], sparse: str) -> None:
    pax = {"GNU.sparse.map": sparse, "GNU.sparse.size": "10", "GNU.sparse.name": "s"}
    entry = TarMember(name="s", content=b"x", pax=pax)
    with pytest.raises(PullError) as caught:
        squashed(SampleImage(layers=(BASE, Layer(entries=(entry,)))))
    assert (caught.value.code, caught.value.key) == ("layer-damaged", "layer 2")


def test_etc_that_is_a_link_gets_our_files_within_the_image(
    squashed: Callable[..., Path], unpacked: Callable[[Path], Any], tmp_path: Path
) -> None:
    layer = Layer(
        entries=(
            symlink("etc", "../../../usr/etc"),
            folder("usr/etc"),
            symlink("usr/etc/rc", "/tmp/rc"),
        )
    )
    found = unpacked(squashed(SampleImage(layers=(layer,), config={"WorkingDir": "/etc/../srv/w"})))
    assert found["usr/etc/rc"][0] == "-rwxr-xr-x", "a link there is replaced"
    assert {"usr/etc/environment", "usr/etc/fstab", "usr/srv/w"} <= found.keys()
