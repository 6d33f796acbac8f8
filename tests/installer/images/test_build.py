# SPDX-License-Identifier: Apache-2.0
"""Tests of building from a real registry: once, whole or not at all, and never believing what is there."""

import json
import os
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from llmb.errors import LlmbError
from llmb.system import locks
from llmb.system.shell import StoppedError
from llmb_installer import images
from llmb_installer.images import BuildSettings, ImageFacts, check, read_facts
from llmb_installer.registry import ImageFaultError
from llmb_testing.real_registry import RealRegistry
from llmb_testing.sample_images import Layer, SampleImage, digest_of, file, make_index

REPOSITORY, TAG = "public/tool", "1.0"
KILLS = int(os.environ.get("LLMB_TEST_KILLS", "6"))
_ARM = bytes.fromhex("7f454c46020101000000000000000000") + b"\x02\x00\xb7\x00" + bytes(44)
_INTEL = _ARM[:18] + b"\x3e" + _ARM[19:]
Build = Callable[..., ImageFacts]


class Told:
    """A Progress that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.wanted = self.done = 0
        self.stops_at: int | None = None
        self.lock = threading.Lock()  # layers are fetched side by side

    def total(self, bytes: int) -> None:
        self.wanted = bytes

    def advance(self, bytes: int) -> None:
        with self.lock:
            self.done += bytes
        if self.stops_at is not None and self.done > self.stops_at:
            raise StoppedError("interrupted")

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture(scope="module")
def reference(registry: RealRegistry) -> str:
    """An image for two architectures; each says in a file for which, and has a program."""
    noise = Random(1).randbytes(3_000_000)

    def image(architecture: str, program: bytes) -> SampleImage:
        lowest = Layer(entries=(file("usr/bin/bash", program, mode=0o755), file("noise", noise)))
        upper = Layer(entries=(file("architecture", architecture.encode()), file("more", noise[::-1])))
        return SampleImage(layers=(lowest, upper), architecture=architecture, config={"Env": ["A=1"]})

    registry.push(REPOSITORY, TAG, make_index([image("amd64", _INTEL), image("arm64", _ARM)]))
    return registry.reference(REPOSITORY, TAG)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "images" / "tool.sqsh"


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def build(reference: str, target: Path, tmp_path: Path, told: Told) -> Build:
    """Builds the image of the registry; keywords are BuildSettings, and of the call itself."""

    def run(of: str = reference, architecture: str = "x86_64", update: bool = False, **settings: Any) -> ImageFacts:
        return images.build(
            of,
            architecture,
            target,
            BuildSettings(**settings),
            environ=os.environ,
            home=tmp_path,
            progress=told,
            log=tmp_path / "log",
            update=update,
        )

    return run


def content(image: Path, name: str) -> bytes:
    return subprocess.run(["unsquashfs", "-cat", image, name], capture_output=True, check=True).stdout


def left_over(folder: Path) -> list[str]:
    """What should not be in a folder of images beside images, records and the files of locks."""
    names = (path.name for path in folder.iterdir() if ".lock." not in path.name)
    return [name for name in names if not name.endswith((".sqsh", ".sqsh.json"))]


@pytest.mark.parametrize(("architecture", "name"), [("x86_64", "amd64"), ("arm64", "arm64"), ("aarch64", "arm64")])
def test_built_for_the_architecture_of_the_nodes(
    build: Build, target: Path, told: Told, architecture: str, name: str
) -> None:
    facts = build(architecture=architecture)
    assert content(target, "architecture") == name.encode()
    assert content(target, "etc/environment") == b"A=1\n"
    assert (facts.architecture, facts.builder, facts.adopted) == (name, "stream", False)
    assert facts.size == target.stat().st_size
    assert digest_of(target.read_bytes()) == f"sha256:{facts.sha256}"
    assert facts.index_digest is not None
    assert facts.digest not in (None, facts.index_digest)
    assert read_facts(target) == facts
    assert check(target, deep=True) == []
    assert left_over(target.parent) == []
    assert told.wanted == told.done > 6_000_000


@pytest.mark.parametrize("compression", ["gzip", "lz4"])
def test_other_compressions(build: Build, target: Path, compression: str) -> None:
    facts = build(compression=compression)
    assert facts.options[:2] == ("-comp", compression)
    told = subprocess.run(["unsquashfs", "-s", target], capture_output=True, text=True, check=True).stdout
    assert f"Compression {compression}" in told


def test_one_that_is_there_is_used_without_the_registry(
    build: Build, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build()
    monkeypatch.setattr("llmb_installer.registry.client.Registry.manifest", _no_network)
    assert build() == first


def _no_network(*arguments: object) -> None:
    pytest.fail("the registry was asked")


def damage_cut(image: Path) -> str:
    os.truncate(image, image.stat().st_size // 2)
    return "it is cut: "


def damage_flip(image: Path) -> str:
    before = image.stat()
    with image.open("r+b") as stream:
        stream.seek(1_000_000)
        byte = stream.read(1)[0]
        stream.seek(1_000_000)
        stream.write(bytes([byte ^ 1]))
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns + 1))  # else it may be the same tick of the clock
    return "its content is not what its record says (the sha256 differs)"


def damage_empty(image: Path) -> str:
    image.write_bytes(b"")
    return "it is empty"


def damage_other(image: Path) -> str:
    image.write_bytes(b"<html>" * 100)
    return "it is not a squashfs image"


def damage_grown(image: Path) -> str:
    with image.open("ab") as stream:
        stream.write(b"x")
    return "its record says"


@pytest.mark.parametrize("damage", [damage_cut, damage_flip, damage_empty, damage_other, damage_grown])
def test_what_is_damaged_is_found_and_built_again(
    build: Build, target: Path, told: Told, damage: Callable[[Path], str]
) -> None:
    before = build()
    fault = damage(target)
    assert fault in check(target, deep=True)[0]
    after = build()
    assert any(fault in text and text.endswith("it is built again") for text in told.said)
    assert after.digest == before.digest
    assert check(target, deep=True) == []


def test_a_flipped_byte_is_found_by_a_deep_check_even_with_its_old_time(build: Build, target: Path) -> None:
    build()
    times = target.stat()
    damage_flip(target)
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert check(target, deep=False) == []
    assert "sha256 differs" in check(target, deep=True)[0]


def test_one_that_was_copied_is_compared_and_used(build: Build, target: Path, told: Told) -> None:
    first = build()
    os.utime(target, ns=(1, 1))
    told.said.clear()
    second = build()
    assert told.said == []
    assert (second.sha256, second.mtime_ns) == (first.sha256, 1)


def test_one_without_a_record_is_taken_over(build: Build, target: Path, told: Told) -> None:
    build()
    target.with_name("tool.sqsh.json").unlink()
    assert check(target, deep=True) == ["its record is missing"]
    facts = build()
    assert (facts.adopted, facts.architecture, facts.digest) == (True, "amd64", None)
    assert check(target, deep=True) == []
    assert build() == facts


def test_one_for_other_nodes_is_built_again_with_and_without_a_record(build: Build, target: Path, told: Told) -> None:
    build(architecture="arm64")
    build()
    assert told.said.count(f"{target}: it is for aarch64, the nodes are x86_64; it is built again") == 1
    target.with_name("tool.sqsh.json").unlink()
    build(architecture="arm64")
    assert any("the programs in it are for x86_64, the nodes are aarch64" in text for text in told.said)
    assert content(target, "architecture") == b"arm64"


def test_another_image_under_the_same_name_is_not_overwritten(
    build: Build, registry: RealRegistry, target: Path
) -> None:
    before = build()
    with pytest.raises(LlmbError, match=r"tool.sqsh is the image .*public/tool:1.0, not .*public/tool:2.0"):
        build(registry.reference(REPOSITORY, "2.0"))
    assert read_facts(target) == before


def test_a_tag_that_has_moved_is_built_again_only_when_that_is_wanted(
    build: Build, registry: RealRegistry, target: Path
) -> None:
    def push(text: bytes) -> None:
        registry.push("public/moves", "latest", make_index([SampleImage(layers=(Layer(entries=(file("f", text),)),))]))

    moving = registry.reference("public/moves", "latest")
    push(b"one")
    first = build(moving)
    assert build(moving, update=True) == first, "nothing has changed"
    push(b"two")
    assert build(moving) == first
    second = build(moving, update=True)
    assert second.digest != first.digest
    assert content(target, "f") == b"two"


def test_what_the_registry_lacks_leaves_nothing_behind(build: Build, registry: RealRegistry, target: Path) -> None:
    for of, architecture, kind in [
        (registry.reference(REPOSITORY, "none"), "amd64", "not_there"),
        (registry.reference(REPOSITORY, TAG), "ppc64le", "architecture"),
    ]:
        with pytest.raises(ImageFaultError) as raised:
            build(of, architecture)
        assert raised.value.kind == kind
    assert not target.exists()
    assert left_over(target.parent) == []


def test_programs_for_other_machines_than_the_manifest_says_are_refused(
    build: Build, registry: RealRegistry, target: Path
) -> None:
    layer = Layer(entries=(file("usr/bin/bash", _ARM, mode=0o755),))
    registry.push("public/lies", "1", make_index([SampleImage(layers=(layer,), architecture="amd64")]))
    with pytest.raises(LlmbError, match="says it is for x86_64, but its programs are for aarch64"):
        build(registry.reference("public/lies", "1"))
    assert not target.exists()


def test_layers_stay_where_they_are_wanted(build: Build, target: Path, tmp_path: Path) -> None:
    build(keep_layers=True, cache=tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    layers = [path for path in folder.iterdir() if path.name.startswith("sha256-") and ".lock." not in path.name]
    assert len(layers) == 2
    assert sum(path.stat().st_size for path in layers) > 6_000_000
    layers[0].write_bytes(layers[0].read_bytes()[:-1] + b"\0")  # damaged since
    target.unlink()
    build(cache=tmp_path / "cache")
    assert check(target, deep=True) == []
    assert not folder.exists()


def test_a_layer_that_comes_twice(build: Build, registry: RealRegistry, target: Path) -> None:
    twice = Layer(entries=(file("twice", b"x" * 100_000),))
    image = SampleImage(layers=(twice, Layer(entries=(file("other", b"o"),)), twice))
    registry.push("public/twice", "1", make_index([image]))
    build(registry.reference("public/twice", "1"))
    assert content(target, "twice") == b"x" * 100_000


@pytest.mark.parametrize("stops_at", [0, 1_000_000, 6_100_000], ids=["at once", "fetching", "writing"])
def test_one_that_is_interrupted_leaves_nothing_half(
    build: Build, target: Path, told: Told, stops_at: int, tmp_path: Path
) -> None:
    told.stops_at = stops_at
    with pytest.raises(StoppedError):
        build()
    assert not target.exists()
    assert left_over(target.parent) == [".layers"]
    told.stops_at = None
    build()
    assert check(target, deep=True) == []
    assert left_over(target.parent) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a small file system cannot be mounted here (it takes root)")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_that_is_too_small_is_said_before(
    image_command: Callable[..., subprocess.CompletedProcess[str]], reference: str, small_disk: Path
) -> None:
    done = image_command(reference, "-o", small_disk / "x.sqsh", "--arch", "x86_64")
    assert done.returncode == 1
    assert "are needed" in done.stderr
    assert "hint: free space there, or choose another folder" in done.stderr


def test_a_disk_that_gets_full(
    image_command: Callable[..., subprocess.CompletedProcess[str]],
    registry: RealRegistry,
    small_disk: Path,
    tmp_path: Path,
) -> None:
    """Small as it is fetched, large as it is written: compressed by less than it was."""
    text = b"".join(b"%d" % (number * number) for number in range(600_000))
    layer = Layer(entries=(file("text", text),), compression="zstd")
    registry.push("public/text", "1", make_index([SampleImage(layers=(layer,))]))
    (small_disk / "filler").write_bytes(bytes(700_000))
    old = small_disk / "x.sqsh"
    done = image_command(
        registry.reference("public/text", "1"),
        "-o",
        old,
        "--arch",
        "x86_64",
        "--cache",
        tmp_path / "cache",
        "--compression",
        "lz4",
    )
    assert done.returncode == 1
    assert "is full" in done.stderr or "No space left" in done.stderr
    assert "hint: free space" in done.stderr
    assert sorted(path.name for path in small_disk.iterdir() if "x.sqsh." not in path.name) == ["filler"]


def test_a_limit_for_the_size_of_files(image_argv: Callable[..., list[str]], reference: str, tmp_path: Path) -> None:
    """As on a full disk, also where none can be mounted: the file that was there stays, the next attempt succeeds."""
    argv = image_argv(reference, "-o", "x.sqsh", "--arch", "x86_64", "--cache", tmp_path / "cache")
    done = subprocess.run(
        argv,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, 4_000_000)),
    )
    assert done.returncode == 1
    assert "limit for the size of a file" in done.stderr
    assert "hint: raise it" in done.stderr
    assert not (tmp_path / "x.sqsh").exists()
    assert not [*tmp_path.glob(".*.part")]
    again = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert check(tmp_path / "x.sqsh", deep=True) == []


def test_who_comes_second_waits_and_uses_it(
    image_argv: Callable[..., list[str]], build: Build, reference: str, target: Path, tmp_path: Path
) -> None:
    build()
    kept = [path.rename(tmp_path / path.name) for path in (target, target.with_name("tool.sqsh.json"))]
    with locks.hold(target.parent, ".tool.sqsh"):
        argv = image_argv(reference, "-o", target, "--arch", "x86_64")
        second = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert second.stderr is not None
        assert f"waiting for process {os.getpid()} on " in second.stderr.readline()
        for path in reversed(kept):
            shutil.copy2(path, target.with_name(path.name))
    out, err = second.communicate()
    assert (second.returncode, err) == (0, "")
    assert out.startswith(f"{target}: ")


def test_two_at_once_build_it_once(image_argv: Callable[..., list[str]], reference: str, tmp_path: Path) -> None:
    """Both are there before either can begin: who came later would say that the image was there already."""
    argv = image_argv(reference, "-o", "x.sqsh", "--arch", "x86_64")
    with locks.hold(tmp_path, ".x.sqsh"):
        both = [
            subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        for process in both:
            assert process.stderr is not None
            assert f"waiting for process {os.getpid()} on " in process.stderr.readline()
    told = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    assert sum("writing the image" in err for _, err in told) == 1, told
    assert told[0][0] == told[1][0]
    assert check(tmp_path / "x.sqsh", deep=True) == []


@pytest.mark.timeout(3600)
@pytest.mark.fault("image-kills")
def test_killed_at_any_moment_the_next_one_ends_right(
    image_argv: Callable[..., list[str]], reference: str, tmp_path: Path, seen: Callable[..., None]
) -> None:
    """kill -9 spread over the time of a build; LLMB_TEST_KILLS sets how many."""
    target = tmp_path / "images" / "x.sqsh"
    argv = image_argv(reference, "-o", target, "--arch", "x86_64")
    started = time.monotonic()
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    lasts = time.monotonic() - started
    random = Random(KILLS)
    for number in range(KILLS):
        for path in (target, target.with_name("x.sqsh.json")):
            if number % 2:  # half of them begin anew, half go on from what the one before left
                path.unlink(missing_ok=True)
        if target.exists() and random.random() < 0.5:
            os.truncate(target, 5_000)
        process = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.random() * lasts * 1.1)
        process.kill()
        process.wait()
        broken = check(target, deep=True) if target.exists() else []
        seen(tried=1, wrong_ends=not (broken in ([], ["its record is missing"]) or target.stat().st_size == 5_000))
        assert broken == [] or target.stat().st_size == 5_000 or broken == ["its record is missing"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert check(target, deep=True) == []
    facts = read_facts(target)
    assert facts is not None
    assert not facts.adopted
    assert json.loads(target.with_name("x.sqsh.json").read_text())["size"] == target.stat().st_size
    assert left_over(target.parent) == []
