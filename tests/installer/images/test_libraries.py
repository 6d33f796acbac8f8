# SPDX-License-Identifier: Apache-2.0
"""Tests of what the installer finds in an image: frameworks, their versions, and a commit."""

import json
import subprocess
from pathlib import Path

import pytest

from llmb_installer.images.adapter import with_libraries
from llmb_installer.images.libraries import libraries_in
from sqshpull.record import read_files, read_record, record_of, record_path, write_record

VENV, SYSTEM = "opt/venv/lib/python3.12/site-packages", "usr/local/lib/python3.12/dist-packages"
COMMIT, OTHER = "51885cf13" + "0" * 31, "c81012934" + "1" * 31
GIT = "opt/Megatron-Bridge/.git"
# As NVIDIA's image has them: docker/Dockerfile.ci of Megatron-Bridge.
FILES = {
    f"{VENV}/megatron_bridge-0.6.0.dist-info/METADATA": "Version: 0.6.0\n",
    f"{VENV}/megatron_core-0.19.0+cd4afff.dist-info/METADATA": "",
    f"{SYSTEM}/megatron_core-0.15.0.dist-info/METADATA": "",
    f"{SYSTEM}/transformer_engine-2.16.0.dist-info/METADATA": "",
    f"{SYSTEM}/megatron_energon-6.0.dist-info/METADATA": "",
    f"{GIT}/HEAD": f"{COMMIT}\n",
    f"{GIT}/objects/pack/big.pack": "x" * 100,
}


def image_of(files: dict[str, str], folder: Path) -> Path:
    """A squashfs image with these files."""
    for name, text in files.items():
        path = folder / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    image = folder / "image.sqsh"
    subprocess.run(
        ["mksquashfs", folder / "root", image, "-quiet", "-no-progress"], check=True, timeout=60
    )
    return image


def test_the_versions_and_the_commit_are_found(tmp_path: Path, programs: None) -> None:
    assert libraries_in(image_of(FILES, tmp_path)) == {
        "megatron-bridge": "0.6.0",
        "megatron-core": "0.19.0+cd4afff",  # the environment comes before the system
        "transformer-engine": "2.16.0",
        "megatron-bridge commit": COMMIT,
    }


@pytest.mark.parametrize(
    ("files", "commit"),
    [
        ({"HEAD": "ref: refs/heads/main\n", "refs/heads/main": f"{COMMIT}\n"}, COMMIT),
        (
            {
                "HEAD": "ref: refs/heads/r0.6.0\n",
                "packed-refs": f"# pack-refs\n{OTHER} refs/heads/r0.6.0x\n{COMMIT} refs/heads/r0.6.0\n",
            },
            COMMIT,
        ),
        ({"HEAD": "ref: refs/heads/gone\n"}, None),
        ({"HEAD": "no commit\n"}, None),
    ],
)
def test_the_commit_of_a_branch(
    files: dict[str, str], commit: str | None, tmp_path: Path, programs: None
) -> None:
    image = image_of({f"{GIT}/{name}": text for name, text in files.items()}, tmp_path)
    assert libraries_in(image).get("megatron-bridge commit") == commit


def test_the_library_of_a_plugins_framework_is_found(
    tmp_path: Path, programs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "titan.py").write_text(
        "from llmb.api import Framework, Needs, hookimpl\n"
        "@hookimpl\n"
        "def llmb_frameworks():\n"
        "    nothing = lambda *arguments: None\n"
        "    return [Framework(name='titan', title='Titan', library='torch-titan',\n"
        "                      needs=nothing, launch=nothing)]\n"
    )
    monkeypatch.setenv("LLMB_PLUGINS", str(tmp_path))
    image = image_of({f"{VENV}/torch_titan-0.2.0.dist-info/METADATA": ""}, tmp_path / "image")
    assert libraries_in(image) == {"torch-titan": "0.2.0"}


def test_an_image_without_frameworks_has_none(tmp_path: Path, programs: None) -> None:
    assert libraries_in(image_of({"etc/os-release": "ID=debian\n"}, tmp_path)) == {}


def test_they_are_recorded_beside_the_image_once(tmp_path: Path, programs: None) -> None:
    image = image_of(FILES, tmp_path)
    write_record(
        image, record_of(image, "nvcr.io/nvidia/nemo:26.08", architecture=None, builder="")
    )
    bare = read_record(image)
    assert bare is not None
    assert with_libraries(image, bare).contents["megatron-bridge"] == "0.6.0"
    kept = read_record(image)
    assert kept is not None
    assert kept.contents["megatron-bridge commit"] == COMMIT
    assert with_libraries(tmp_path / "gone.sqsh", kept) is kept


def test_a_record_of_an_earlier_version_has_no_contents(tmp_path: Path) -> None:
    image = tmp_path / "image.sqsh"
    image.write_bytes(b"")
    write_record(image, record_of(image, "a/b:1", architecture=None, builder=""))
    path = record_path(image)
    data = json.loads(path.read_text())
    del data["contents"]
    path.write_text(json.dumps(data))
    found = read_record(image)
    assert found is not None
    assert found.contents == {}


def test_files_are_read_by_pattern_without_links(tmp_path: Path, programs: None) -> None:
    (tmp_path / "root" / "a").mkdir(parents=True)
    (tmp_path / "root" / "a" / "link").symlink_to("/etc/passwd")
    image = image_of({"a/x1.txt": "1", "a/x2.txt": "2", "b/y.txt": "3"}, tmp_path)
    assert read_files(image, ["a/x*.txt"]) == {"a/x1.txt": b"1", "a/x2.txt": b"2"}
    assert read_files(image, ["a", "nothing"]) == {"a/x1.txt": b"1", "a/x2.txt": b"2"}
    assert read_files(image, ["nothing"]) == {}
