# SPDX-License-Identifier: Apache-2.0
"""Tests of the command sqshpull, which runs without llmb."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb_testing.real_registry import RealRegistry
from llmb_testing.sample_images import Layer, Made, SampleImage, file, make_index
from llmb_testing.scripted_registry import Hang, ScriptedRegistry

Run = Callable[..., "subprocess.CompletedProcess[str]"]
_LIGHT = """
import sys
import sqshpull.settings, sqshpull.cli
sqshpull.cli.make_parser()
print(*(name for name in sys.modules if name.partition(".")[0] in ("llmb", "llmb_installer", "httpx")))
"""


@pytest.fixture(scope="module")
def reference(registry: RealRegistry) -> str:
    layer = Layer(entries=(file("f", b"1"),))
    made = [SampleImage(layers=(layer,), architecture=name) for name in ("amd64", "arm64")]
    registry.push("public/pulled", "1.0", make_index(made))
    return registry.reference("public/pulled", "1.0")


def test_nothing_of_llmb_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LIGHT], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_enroots_spelling_to_a_file(image_command: Run, reference: str, tmp_path: Path) -> None:
    host, _, path = reference.partition("/")
    done = image_command(f"docker://{host}#{path}", "-o", "x.sqsh", "--arch", "aarch64")
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 2, "fetching, writing"
    assert done.stdout.startswith("x.sqsh: 4.1 kB, for aarch64, sha256:")
    assert {path.name for path in tmp_path.iterdir()} == {"x.sqsh", "x.sqsh.json"}
    assert json.loads((tmp_path / "x.sqsh.json").read_text())["reference"] == reference
    again = image_command(reference, "-o", "x.sqsh", "--arch", "aarch64")
    assert (again.returncode, again.stderr, again.stdout) == (0, "", done.stdout)


def test_a_name_of_its_own_and_no_progress(
    image_command: Run, reference: str, tmp_path: Path
) -> None:
    done = image_command(reference, "-q", "-j", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "public+pulled+1.0.sqsh").is_file()


def test_check(image_command: Run, reference: str, tmp_path: Path) -> None:
    words = (reference, "-o", "x.sqsh", "--arch", "x86_64")
    assert image_command(*words, "--check").returncode == 1
    assert not (tmp_path / "x.sqsh").exists()
    image_command(*words)
    assert image_command(*words, "--check").returncode == 0
    with (tmp_path / "x.sqsh").open("r+b") as stream:
        stream.write(b"HSQS")
    broken = image_command(*words, "--check")
    assert broken.returncode == 1
    assert broken.stderr.startswith("error: x.sqsh: ")
    assert "\nhint: " in broken.stderr


def test_check_reports_a_moved_tag(image_command: Run, registry: RealRegistry) -> None:
    moving = registry.reference("public/pulled-moves", "1")
    for content in (b"1", b"2"):
        image = SampleImage(layers=(Layer(entries=(file("f", content),)),))
        registry.push("public/pulled-moves", "1", make_index([image]))
        image_command(moving, "-o", "x.sqsh", "--arch", "x86_64")
    checked = image_command(moving, "-o", "x.sqsh", "--arch", "x86_64", "--check")
    assert checked.returncode == 1
    assert "--update" in checked.stderr


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        ((), 2, "IMAGE"),
        (("a/b:1", "--mirror", "docker.io"), 2, "--mirror docker.io"),
        (("a/b:1", "--level", "99"), 2, "--level"),
        (("a/b:1", "--jobs", "0"), 2, "--jobs"),
        (("Not A Reference",), 2, "'Not A Reference'"),
        (("a/b:1", "--compression", "best"), 2, "'best'"),
        (("127.0.0.1:9/a:1", "--arch", "x86_64"), 1, "127.0.0.1:9"),
    ],
)
def test_exit_codes(image_command: Run, words: tuple[str, ...], code: int, named: str) -> None:
    done = image_command(*words)
    assert done.returncode == code
    assert named in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c(
    image_argv: Callable[..., list[str]], scripted: ScriptedRegistry, made: Made, tmp_path: Path
) -> None:
    name = scripted.add("team/tool", "1", made)
    scripted.next("/manifests/", Hang(10, threading.Event()))
    process = subprocess.Popen(
        image_argv(name, "-o", "x.sqsh", "--arch", "x86_64"),
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not scripted.asked("/manifests/"):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert not (tmp_path / "x.sqsh").exists()
