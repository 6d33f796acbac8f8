# SPDX-License-Identifier: Apache-2.0
"""Tests of layers with bad intentions: right, or refused with the layer named."""

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.errors import LlmbError
from llmb_installer.images.tarheader import FILE, Attributes, header
from llmb_testing.sample_images import Entry, Layer, SampleImage, file, folder, hardlink, symlink, whiteout

BASE = Layer(entries=(folder("etc"), file("etc/passwd", b"root"), symlink("loop", "loop"), file("plain", b"1")))


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ((file("../escape", b"x"),), "holds the name '../escape', which leads out of the image"),
        ((file("a/../../escape", b"x"),), "leads out of the image"),
        ((folder(".."),), "leads out of the image"),
        ((hardlink("passwd", "../../etc/passwd"),), "leads out of the image"),
        ((hardlink("new", "not-there"),), "makes 'new' a further name of 'not-there', which is not there"),
        ((hardlink("new", "etc"),), "makes 'new' a further name of 'etc', which is a folder"),
        ((file("loop/x", b"x"),), "holds 'loop', whose symbolic links lead nowhere"),
        ((file("plain/x", b"x"),), "holds something below 'plain', which is not a folder"),
        ((file("n" * 300, b"x"),), "holds a name of 300 bytes"),
        ((file("d" * 200 + "/" + "n" * 256, b"x"),), "holds a name of 256 bytes"),
        ((whiteout("."),), "which hides nothing that has a name"),
        ((Entry(name="./", type=tarfile.REGTYPE),), "holds an entry without a name"),
        ((Entry(name="odd", type=b"Z"),), "of the unknown type b'Z'"),
        ((file("/".join(["long"] * 1000), b"x"),), "a name in it has 4,999 bytes"),
    ],
)
def test_refused_with_the_layer_named(squashed: Callable[..., Path], entries: tuple[Entry, ...], told: str) -> None:
    with pytest.raises(LlmbError) as raised:
        squashed(SampleImage(layers=(BASE, Layer(entries=entries))))
    assert told in raised.value.message
    assert raised.value.message.startswith("layer 2 ")
    assert raised.value.hint == "the image is refused; ask who made it"


def test_links_out_of_the_image_stay_in_it(
    squashed: Callable[..., Path], unpacked: Callable[[Path], Any], tmp_path: Path
) -> None:
    """What goes through a link that leads out lands where it would in a container: below the image's own root."""
    outside = tmp_path / "outside"
    outside.mkdir()
    layers = (
        Layer(entries=(symlink("up", "../../../../etc"), symlink("host", str(outside)))),
        Layer(entries=(file("up/shadow", b"x"), file("host/pwned", b"x"), file("/etc/absolute", b"x"))),
    )
    found = unpacked(squashed(SampleImage(layers=layers)))
    assert {"etc/shadow", "etc/absolute", f"{str(outside)[1:]}/pwned"} <= found.keys()
    assert not [*outside.iterdir()]


def test_a_link_and_what_goes_through_it_in_one_layer(
    squashed: Callable[..., Path], unpacked: Callable[[Path], Any]
) -> None:
    entries = (symlink("a", "b"), file("a/x", b"1"), file("twice", b"1"), file("twice", b"2", mode=0o600))
    found = unpacked(squashed(SampleImage(layers=(Layer(entries=entries),))))
    assert found["b/x"][0] == "-rw-r--r--"
    assert found["a"][4] == "b"
    assert found["twice"][0] == "-rw-------", "the later one of two"


def test_a_bomb_is_refused_before_it_goes_off(squashed: Callable[..., Path]) -> None:
    """A few kilobytes that become more than a layer of their size can mean."""
    large = header(b"zeros", FILE, 2**42, Attributes())
    with pytest.raises(LlmbError, match=r"layer 2 looks like an attack .* would become more than 1,073,741,824"):
        squashed(SampleImage(layers=(BASE, Layer(tar=large + bytes(4096)))))


def test_a_sparse_bomb_is_refused(squashed: Callable[..., Path]) -> None:
    pax = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(2**50)}
    entry = Entry(name="sparse", content=b"0\n".ljust(512, b"\0"), pax=pax)
    with pytest.raises(LlmbError, match="layer 2 looks like an attack"):
        squashed(SampleImage(layers=(BASE, Layer(entries=(entry,)))))


@pytest.mark.parametrize("sparse", ["9,9", "5,1,0,1", "0,99999999999", "1,x", "1"])
def test_a_damaged_sparse_map_is_found(squashed: Callable[..., Path], sparse: str) -> None:
    pax = {"GNU.sparse.map": sparse, "GNU.sparse.size": "10", "GNU.sparse.name": "s"}
    entry = Entry(name="s", content=b"x", pax=pax)
    with pytest.raises(LlmbError, match="layer 2: "):
        squashed(SampleImage(layers=(BASE, Layer(entries=(entry,)))))


def test_etc_that_is_a_link_gets_our_files_within_the_image(
    squashed: Callable[..., Path], unpacked: Callable[[Path], Any], tmp_path: Path
) -> None:
    layer = Layer(entries=(symlink("etc", "../../../usr/etc"), folder("usr/etc"), symlink("usr/etc/rc", "/tmp/rc")))
    found = unpacked(squashed(SampleImage(layers=(layer,), config={"WorkingDir": "/etc/../srv/w"})))
    assert found["usr/etc/rc"][0] == "-rwxr-xr-x", "a link there is replaced"
    assert {"usr/etc/environment", "usr/etc/fstab", "usr/srv/w"} <= found.keys()
