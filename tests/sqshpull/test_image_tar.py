# SPDX-License-Identifier: Apache-2.0
"""Tests that the image has the files of an unpacker: umoci's tree and ours, entry by entry."""

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from llmb_testing.sample_images import (
    Layer,
    SampleImage,
    TarMember,
    file,
    folder,
    hardlink,
    make,
    opaque,
    symlink,
    whiteout,
)
from sqshpull.errors import PullError

RANDOM_IMAGES = int(os.environ.get("LLMB_TEST_IMAGES", "12"))  # 400 were compared by hand

BASE = Layer(
    entries=(
        folder("./", mode=0o711),
        folder("etc"),
        file("etc/motd", b"hello"),
        file("etc/gone", b"x"),
        folder("usr"),
        folder("usr/lib"),
        symlink("lib", "usr/lib"),
        file("usr/lib/old", b"old"),
        folder("op"),
        file("op/a", b"a"),
        folder("op/sub"),
        file("op/sub/b", b"b"),
        file("su", b"su" * 1000, mode=0o4755),
        file("secret", b"s", mode=0),
        hardlink("su2", "su"),
        file("t1", b"target"),
        hardlink("t2", "t1"),
        hardlink("t3", "./t1"),
        file("x" * 90 + "/" + "y" * 120, b"long"),
        TarMember(name="fifo", type=tarfile.FIFOTYPE),
        TarMember(name="id", uid=3_000_000_000, gid=70_000, content=b"i"),
        symlink("out", "../../../etc/passwd"),
        symlink("absolute", "/etc"),
        file("xattr", b"x", pax={"SCHILY.xattr.user.note": "two\nlines=1"}),
        file("to-folder", b"1"),
        folder("to-file"),
        file("to-file/in", b"1"),
        file("ümlaut", b"u"),
        folder("sticky", mode=0o1777),
        symlink("deep", "usr/../op/sub"),
        file("empty"),
    )
)
MIDDLE = Layer(
    entries=(
        whiteout("etc/gone"),
        file("lib/new", b"through a link"),
        whiteout("lib/old"),
        folder("op"),
        opaque("op"),
        file("op/c", b"c"),
        file("t1", b"replaced"),
        hardlink("late", "su2"),
        folder("to-folder"),
        file("to-folder/x", b"1"),
        file("to-file", b"now"),
        file("/absolute-name", b"abs"),
        file("no/parent/file", b"n"),
        hardlink("absolute/motd2", "etc/motd"),
        hardlink("out2", "out"),
    )
)
TOP = Layer(
    entries=(
        whiteout("t2"),
        folder("to-file"),
        whiteout("to-folder"),
        file("su", b"new", mode=0o755),
        folder("op", mode=0o700),
        file("id", b"again"),
    )
)


@pytest.fixture
def unpacked_by_umoci(
    tmp_path: Path, as_tree: Callable[[Path], dict[str, Any]]
) -> Callable[[SampleImage], Any]:
    """umoci's tree of an image; None where it fails."""
    if shutil.which("umoci") is None:
        pytest.skip("not here: umoci (Debian's umoci)")

    def unpack(image: SampleImage) -> Any:
        oci, into = tmp_path / "oci", tmp_path / "umoci"
        for path in (oci, into):
            shutil.rmtree(path, ignore_errors=True)
        made = make(image)
        (oci / "blobs/sha256").mkdir(parents=True)
        for digest, blob in {**made.blobs, made.digest: made.manifest}.items():
            (oci / "blobs/sha256" / digest.removeprefix("sha256:")).write_bytes(blob)
        item: dict[str, Any] = {
            "mediaType": made.media_type,
            "digest": made.digest,
            "size": len(made.manifest),
        }
        item["annotations"] = {"org.opencontainers.image.ref.name": "t"}
        (oci / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        (oci / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [item]}))
        rootless = [] if os.geteuid() == 0 else ["--rootless"]
        argv = ["umoci", "unpack", *rootless, "--image", f"{oci}:t", str(into)]
        # A folder without an entry is created with the umask.
        done = subprocess.run(argv, capture_output=True, text=True, check=False, umask=0o022)
        return as_tree(into / "rootfs") if done.returncode == 0 else None

    return unpack


def without_times_of_folders(tree: dict[str, Any], ours: set[str]) -> dict[str, Any]:
    return {path: seen for path, seen in tree.items() if path not in ours}


def test_the_same_as_umoci(
    squashed: Callable[..., Path],
    unpacked: Callable[[Path], Any],
    unpacked_by_umoci: Callable[[SampleImage], Any],
    ours: set[str],
) -> None:
    image = SampleImage(layers=(BASE, MIDDLE, TOP), kind="oci")
    theirs = unpacked_by_umoci(image)
    found = unpacked(squashed(image))
    assert theirs is not None
    assert without_times_of_folders(found, ours) == theirs
    assert found["late"][0] == ("-rwsr-xr-x" if os.geteuid() == 0 else "-rwxr-xr-x")
    assert found["late"][3] == found["su2"][3] == 2, "two names are left of three"
    assert "usr/lib/new" in found
    assert "usr/lib/old" not in found


@pytest.mark.parametrize("seed", range(RANDOM_IMAGES))
def test_random_layers_are_the_same_as_umocis(
    seed: int,
    squashed: Callable[..., Path],
    unpacked: Callable[[Path], Any],
    ours: set[str],
    unpacked_by_umoci: Callable[[SampleImage], Any],
) -> None:
    """Few names, so that layers often overlap; an image that umoci cannot unpack is replaced by the
    next.
    """
    random = Random(seed)
    theirs = None
    while theirs is None:
        image = SampleImage(
            layers=tuple(_layer(random) for _ in range(random.randint(2, 5))), kind="oci"
        )
        theirs = unpacked_by_umoci(image)
    theirs.setdefault("etc", ("drwxr-xr-x", *next(iter(theirs.values()))[1:2], None, 0, None, {}))
    assert without_times_of_folders(unpacked(squashed(image)), ours) == theirs


def _layer(random: Random) -> Layer:
    entries: list[TarMember] = []
    there: list[str] = []
    for number in range(random.randint(1, 9)):
        name = "/".join(random.choice("abc") for _ in range(random.randint(1, 3)))
        if any(
            name == other or name.startswith(f"{other}/") or other.startswith(f"{name}/")
            for other in there
        ):
            continue
        for depth in range(1, name.count("/") + 1):
            above = "/".join(name.split("/")[:depth])
            if above not in there and random.random() < 0.7:
                entries.append(folder(above, mode=random.choice([0o755, 0o750])))
        kind = random.choice(
            ["file", "file", "file", "folder", "symlink", "hardlink", "whiteout", "opaque"]
        )
        content = f"{number} {random.random()}".encode()
        if kind == "file":
            entries.append(file(name, content, mode=random.choice([0o644, 0o755, 0o4711])))
        elif kind == "folder":
            entries.append(folder(name, mode=random.choice([0o755, 0o700, 0o1777])))
        elif kind == "symlink":
            target = random.choice(["a", "b", "../a", "/c", "b/c", "../../a/b"])
            entries.append(symlink(name, target))
        elif kind == "hardlink":
            entries.append(file(name, content))
            entries.append(hardlink(f"{name}2", name))
        elif kind == "whiteout":
            entries.append(whiteout(name))
        else:
            entries.append(opaque(name))
        there.append(name)
    return Layer(entries=tuple(entries))


def test_device_nodes_are_omitted_by_default(
    squashed: Callable[..., Path], tmp_path: Path, programs: None
) -> None:
    device = TarMember(name="opt/null", type=tarfile.CHRTYPE, device=(1, 3), mode=0o666)
    image = SampleImage(layers=(Layer(entries=(device, folder("dev"), file("dev/console", b""))),))
    assert listed(squashed(image)) == {"dev", "opt"}
    kept = squashed(image, devices=True)
    assert listed(kept) == {"dev", "opt", "opt/null"}
    lines = subprocess.run(
        ["unsquashfs", "-lls", kept], capture_output=True, text=True, check=True
    ).stdout
    assert ["crw-rw-rw-", "root/root", "1,", "3"] in [
        line.split()[:4] for line in lines.splitlines()
    ]


def listed(image: Path) -> set[str]:
    """The paths in an image, except those in /etc."""
    done = subprocess.run(["unsquashfs", "-l", image], capture_output=True, text=True, check=True)
    names = {
        line.removeprefix("squashfs-root/")
        for line in done.stdout.splitlines()
        if "squashfs-root/" in line
    }
    return {name for name in names if name.split("/")[0] != "etc"}


def test_the_root_folder_is_as_the_image_says(squashed: Callable[..., Path]) -> None:
    """At least its mode: mksquashfs 4.5 ignores its owner and time."""

    def root(*entries: TarMember) -> str:
        image = squashed(SampleImage(layers=(Layer(entries=entries),)))
        done = subprocess.run(
            ["unsquashfs", "-lln", image], capture_output=True, text=True, check=True
        )
        return next(line for line in done.stdout.splitlines() if line.endswith("squashfs-root"))

    assert root(folder("./", mode=0o711)).split()[0] == "drwx--x--x"
    assert root(file("a")).split()[0] == "drwxr-xr-x"


def test_an_ordinary_user_can_unpack_it(squashed: Callable[..., Path]) -> None:
    """Like enroot create: unsquashfs must succeed without root's permissions."""
    capability = file(
        "usr/bin/ping", b"p", pax={"SCHILY.xattr.security.capability": "\x01" + "\x00" * 3 + "\x02"}
    )
    null = TarMember(name="opt/null", type=tarfile.CHRTYPE, device=(1, 3))
    image = squashed(SampleImage(layers=(BASE, Layer(entries=(capability, null)))))
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are for its user alone
        place = Path(name)
        place.chmod(0o777)
        shutil.copyfile(image, place / "image").chmod(0o644)
        argv = [
            "unsquashfs",
            "-n",
            "-user-xattrs",
            "-d",
            str(place / "as-user"),
            str(place / "image"),
        ]
        if os.geteuid() == 0:
            if shutil.which("setpriv") is None:
                pytest.skip("not here: setpriv, to leave root (Debian's util-linux)")
            argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *argv]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_damaged_layer_is_named(squashed: Callable[..., Path], tmp_path: Path) -> None:
    image = SampleImage(layers=(BASE, Layer(tar=b"no tar at all" * 100)))
    with pytest.raises(PullError) as caught:
        squashed(image)
    assert (caught.value.code, caught.value.key) == ("layer-damaged", "layer 2")
    assert not (tmp_path / "image.sqsh").exists()
