# SPDX-License-Identifier: Apache-2.0
"""Tests of building from a real registry: once, completely or not at all, with existing files
checked.
"""

import contextlib
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

from llmb_testing.real_registry import RealRegistry
from llmb_testing.sample_images import Layer, SampleImage, digest_of, file, make_index
from sqshpull import files
from sqshpull.build import pull
from sqshpull.errors import PullError, PullStoppedError
from sqshpull.record import ImageRecord, check, read_record
from sqshpull.settings import PullSettings, PullUser

REPOSITORY, TAG = "public/tool", "1.0"
KILLS = int(os.environ.get("LLMB_TEST_KILLS", "6"))
_ARM = bytes.fromhex("7f454c46020101000000000000000000") + b"\x02\x00\xb7\x00" + bytes(44)
_INTEL = _ARM[:18] + b"\x3e" + _ARM[19:]
Build = Callable[..., ImageRecord]


class Recorder:
    """A Progress that records."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.wanted = self.done = 0
        self.stops_at: int | None = None
        self.lock = threading.Lock()  # layers are fetched side by side

    def total(self, bytes: int) -> None:
        self.wanted = bytes

    def advance(self, bytes: int) -> None:
        with self.lock:
            self.done += bytes
        if self.stops_at is not None and self.done > self.stops_at:
            raise PullStoppedError("interrupted")

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(scope="module")
def reference(registry: RealRegistry) -> str:
    """An image for two architectures; each says in a file for which, and has a program."""
    noise = Random(1).randbytes(3_000_000)

    def image(architecture: str, program: bytes) -> SampleImage:
        lowest = Layer(entries=(file("usr/bin/bash", program, mode=0o755), file("noise", noise)))
        upper = Layer(
            entries=(file("architecture", architecture.encode()), file("more", noise[::-1]))
        )
        return SampleImage(
            layers=(lowest, upper), architecture=architecture, config={"Env": ["A=1"]}
        )

    registry.push(REPOSITORY, TAG, make_index([image("amd64", _INTEL), image("arm64", _ARM)]))
    return registry.reference(REPOSITORY, TAG)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "images" / "tool.sqsh"


@pytest.fixture
def shown() -> Recorder:
    return Recorder()


@pytest.fixture
def build(reference: str, target: Path, shown: Recorder, home: Path) -> Build:
    """Builds the image of the registry; keywords are PullSettings, and of the call itself."""

    def run(
        of: str = reference, architecture: str = "x86_64", update: bool = False, **settings: Any
    ) -> ImageRecord:
        return pull(
            of,
            target,
            architecture=architecture,
            settings=PullSettings(**settings),
            user=PullUser(home=home),
            progress=shown,
            update=update,
        )

    return run


def content(image: Path, name: str) -> bytes:
    return subprocess.run(
        ["unsquashfs", "-cat", image, name], capture_output=True, check=True
    ).stdout


def held(lock: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of an image, as another builder."""
    return files.locked(lock, lambda owner: None, lambda: None)


def left_over(folder: Path) -> list[str]:
    """The files in a folder of images that are neither images nor records."""
    names = (path.name for path in folder.iterdir())
    return [name for name in names if not name.endswith((".sqsh", ".sqsh.json"))]


@pytest.mark.parametrize(
    ("architecture", "name"), [("x86_64", "amd64"), ("arm64", "arm64"), ("aarch64", "arm64")]
)
def test_built_for_the_architecture_of_the_nodes(
    build: Build, target: Path, shown: Recorder, architecture: str, name: str
) -> None:
    facts = build(architecture=architecture)
    assert content(target, "architecture") == name.encode()
    assert content(target, "etc/environment") == b"A=1\n"
    assert (facts.architecture, facts.builder, facts.adopted) == (name, "stream", False)
    assert facts.size == target.stat().st_size
    assert digest_of(target.read_bytes()) == f"sha256:{facts.sha256}"
    assert facts.index_digest is not None
    assert facts.digest not in (None, facts.index_digest)
    assert read_record(target) == facts
    assert check(target, deep=True) is None
    assert left_over(target.parent) == []
    assert shown.wanted == shown.done > 6_000_000


@pytest.mark.parametrize("compression", ["gzip", "lz4"])
def test_other_compressions(build: Build, target: Path, compression: str) -> None:
    facts = build(compression=compression)
    assert facts.options[:2] == ("-comp", compression)
    printed = subprocess.run(
        ["unsquashfs", "-s", target], capture_output=True, text=True, check=True
    ).stdout
    assert f"Compression {compression}" in printed


def test_an_existing_image_is_used_without_the_registry(
    build: Build, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build()
    monkeypatch.setattr("sqshpull.registry.Registry.manifest", _no_network)
    assert build() == first


def _no_network(*arguments: object) -> None:
    pytest.fail("the registry was asked")


def damage_cut(image: Path) -> None:
    os.truncate(image, image.stat().st_size // 2)


def damage_flip(image: Path) -> None:
    before = image.stat()
    with image.open("r+b") as stream:
        stream.seek(1_000_000)
        byte = stream.read(1)[0]
        stream.seek(1_000_000)
        stream.write(bytes([byte ^ 1]))
    # else it may be the same tick of the clock
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def damage_empty(image: Path) -> None:
    image.write_bytes(b"")


def damage_other(image: Path) -> None:
    image.write_bytes(b"<html>" * 100)


def damage_grown(image: Path) -> None:
    with image.open("ab") as stream:
        stream.write(b"x")


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (damage_cut, "image-cut-off"),
        (damage_flip, "image-content-differs"),
        (damage_empty, "image-cut-off"),
        (damage_other, "not-squashfs"),
        (damage_grown, "image-size-differs"),
    ],
)
def test_damage_is_detected_and_built_again(
    build: Build, target: Path, shown: Recorder, damage: Callable[[Path], None], code: str
) -> None:
    before = build()
    damage(target)
    fault = check(target, deep=True)
    assert fault is not None
    assert fault.code == code
    shown.lines.clear()
    after = build()
    assert shown.lines[0].startswith(f"{target}: {fault.message}"), "the fault is reported"
    assert after.digest == before.digest
    assert check(target, deep=True) is None


def test_a_flipped_byte_is_found_by_a_deep_check_even_with_its_old_time(
    build: Build, target: Path
) -> None:
    build()
    times = target.stat()
    damage_flip(target)
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert check(target, deep=False) is None
    assert (fault := check(target, deep=True)) is not None
    assert fault.code == "image-content-differs"


def test_a_copied_image_is_compared_and_used(build: Build, target: Path, shown: Recorder) -> None:
    first = build()
    os.utime(target, ns=(1, 1))
    shown.lines.clear()
    second = build()
    assert shown.lines == []
    assert (second.sha256, second.mtime_ns) == (first.sha256, 1)


def test_an_image_without_a_record_is_adopted(build: Build, target: Path) -> None:
    build()
    target.with_name("tool.sqsh.json").unlink()
    assert (fault := check(target, deep=True)) is not None
    assert fault.code == "image-record-missing"
    facts = build()
    assert (facts.adopted, facts.architecture, facts.digest) == (True, "amd64", None)
    assert check(target, deep=True) is None
    assert build() == facts


def test_an_image_for_other_nodes_is_built_again_with_and_without_a_record(
    build: Build, target: Path, shown: Recorder, wording: Any
) -> None:
    build(architecture="arm64")
    shown.lines.clear()
    build()
    target.with_name("tool.sqsh.json").unlink()
    build(architecture="arm64")
    wording("sqshpull", "\n".join(shown.lines))
    assert content(target, "architecture") == b"arm64"


def test_another_image_under_the_same_name_is_not_overwritten(
    build: Build, registry: RealRegistry, target: Path, fails: Any
) -> None:
    before = build()
    with fails("image-differs", registry.host) as caught:
        build(registry.reference(REPOSITORY, "2.0"))
    assert (caught.value.key, caught.value.value) == (
        str(target),
        registry.reference(REPOSITORY, TAG),
    )
    assert read_record(target) == before


def test_a_moved_tag_is_built_again_only_with_update(
    build: Build, registry: RealRegistry, target: Path
) -> None:
    def push(text: bytes) -> None:
        registry.push(
            "public/moves",
            "latest",
            make_index([SampleImage(layers=(Layer(entries=(file("f", text),)),))]),
        )

    moving = registry.reference("public/moves", "latest")
    push(b"one")
    first = build(moving)
    assert build(moving, update=True) == first, "nothing has changed"
    push(b"two")
    assert build(moving) == first
    second = build(moving, update=True)
    assert second.digest != first.digest
    assert content(target, "f") == b"two"


def test_an_image_that_the_registry_lacks_leaves_nothing(
    build: Build, registry: RealRegistry, target: Path
) -> None:
    for of, architecture, code in [
        (registry.reference(REPOSITORY, "none"), "amd64", "image-missing"),
        (registry.reference(REPOSITORY, TAG), "ppc64le", "architecture-missing"),
    ]:
        with pytest.raises(PullError) as raised:
            build(of, architecture)
        assert raised.value.code == code
    assert not target.exists()
    assert left_over(target.parent) == []


def test_programs_for_other_machines_than_the_manifest_says_are_rejected(
    build: Build, registry: RealRegistry, target: Path, fails: Any
) -> None:
    layer = Layer(entries=(file("usr/bin/bash", _ARM, mode=0o755),))
    registry.push(
        "public/lies", "1", make_index([SampleImage(layers=(layer,), architecture="amd64")])
    )
    with fails("architecture-wrong", registry.host) as caught:
        build(registry.reference("public/lies", "1"))
    assert caught.value.value == "aarch64"
    assert not target.exists()


def test_layers_are_kept_on_demand(build: Build, target: Path, tmp_path: Path) -> None:
    build(keep_layers=True, cache=tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    layers = [
        path
        for path in folder.iterdir()
        if path.name.startswith("sha256-") and ".lock." not in path.name
    ]
    assert len(layers) == 2
    assert sum(path.stat().st_size for path in layers) > 6_000_000
    layers[0].write_bytes(layers[0].read_bytes()[:-1] + b"\0")  # damaged since
    target.unlink()
    build(cache=tmp_path / "cache")
    assert check(target, deep=True) is None
    assert not folder.exists()


def test_a_layer_that_is_listed_twice(build: Build, registry: RealRegistry, target: Path) -> None:
    twice = Layer(entries=(file("twice", b"x" * 100_000),))
    image = SampleImage(layers=(twice, Layer(entries=(file("other", b"o"),)), twice))
    registry.push("public/twice", "1", make_index([image]))
    build(registry.reference("public/twice", "1"))
    assert content(target, "twice") == b"x" * 100_000


@pytest.mark.parametrize(
    "stops_at", [0, 1_000_000, 6_100_000], ids=["at once", "fetching", "writing"]
)
def test_an_interrupted_build_leaves_nothing_incomplete(
    build: Build, target: Path, shown: Recorder, stops_at: int, tmp_path: Path
) -> None:
    shown.stops_at = stops_at
    with pytest.raises(PullStoppedError):
        build()
    assert not target.exists()
    assert left_over(target.parent) == [".layers"]
    shown.stops_at = None
    build()
    assert check(target, deep=True) is None
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


def test_a_disk_that_is_too_small_is_reported_first(
    image_command: Callable[..., subprocess.CompletedProcess[str]],
    reference: str,
    small_disk: Path,
    wording: Callable[..., None],
) -> None:
    done = image_command(reference, "-o", small_disk / "x.sqsh", "--arch", "x86_64")
    assert done.returncode == 1
    assert f"error: {small_disk}" in done.stderr
    wording("sqshpull", done.stderr[done.stderr.index("hint: ") :])
    assert not [*small_disk.glob("**/sha256-*")], "nothing was fetched"


def test_a_disk_that_gets_full(
    image_command: Callable[..., subprocess.CompletedProcess[str]],
    registry: RealRegistry,
    small_disk: Path,
    tmp_path: Path,
    wording: Callable[..., None],
) -> None:
    """Small when fetched, large when written, because it is compressed less."""
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
    assert f"error: {small_disk}" in done.stderr
    wording("sqshpull", done.stderr[done.stderr.index("hint: ") :])
    assert sorted(path.name for path in small_disk.iterdir() if "x.sqsh." not in path.name) == [
        "filler"
    ]


def test_a_limit_for_the_size_of_files(
    image_argv: Callable[..., list[str]], reference: str, tmp_path: Path
) -> None:
    """Like a full disk, also where none can be mounted: nothing incomplete is left, and the next
    attempt succeeds.
    """
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
    assert "ulimit -f" in done.stderr
    assert not (tmp_path / "x.sqsh").exists()
    assert not [*tmp_path.glob(".*.part")]
    again = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert check(tmp_path / "x.sqsh", deep=True) is None


def test_the_second_waits_and_uses_the_image(
    image_argv: Callable[..., list[str]], build: Build, reference: str, target: Path, tmp_path: Path
) -> None:
    build()
    kept = [
        path.rename(tmp_path / path.name) for path in (target, target.with_name("tool.sqsh.json"))
    ]
    with held(target.with_name(".tool.sqsh.lock")):
        argv = image_argv(reference, "-o", target, "--arch", "x86_64")
        second = subprocess.Popen(
            argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert second.stderr is not None
        assert f"process {os.getpid()}" in second.stderr.readline()
        for path in reversed(kept):
            shutil.copy2(path, target.with_name(path.name))
    out, err = second.communicate()
    assert (second.returncode, err) == (0, "")
    assert out.startswith(f"{target}: ")


def test_two_at_once_build_it_once(
    image_argv: Callable[..., list[str]], reference: str, tmp_path: Path
) -> None:
    """Both wait before either can begin: a later one would report that the image existed
    already.
    """
    argv = image_argv(reference, "-o", "x.sqsh", "--arch", "x86_64")
    with held(tmp_path / ".x.sqsh.lock"):
        both = [
            subprocess.Popen(
                argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        for process in both:
            assert process.stderr is not None
            assert f"process {os.getpid()}" in process.stderr.readline()
    printed = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], printed
    assert sorted(bool(err) for _, err in printed) == [False, True], "one of them built it"
    assert printed[0][0] == printed[1][0]
    assert check(tmp_path / "x.sqsh", deep=True) is None


@pytest.mark.timeout(3600)
@pytest.mark.fault("image-kills")
def test_after_a_kill_at_any_moment_the_next_build_succeeds(
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
            if number % 2:  # half of them restart, half continue with what the one before left
                path.unlink(missing_ok=True)
        if target.exists() and random.random() < 0.5:
            os.truncate(target, 5_000)
        process = subprocess.Popen(
            argv, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(random.random() * lasts * 1.1)
        process.kill()
        process.wait()
        is_sound = (
            not target.exists()
            or check(target, deep=True) is None
            or target.stat().st_size == 5_000
        )
        is_sound = is_sound or not target.with_name("x.sqsh.json").exists()
        seen(tried=1, wrong_ends=not is_sound)
        assert is_sound
    done = subprocess.run(
        argv, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert check(target, deep=True) is None
    facts = read_record(target)
    assert facts is not None
    assert not facts.adopted
    assert json.loads(target.with_name("x.sqsh.json").read_text())["size"] == target.stat().st_size
    assert left_over(target.parent) == []
