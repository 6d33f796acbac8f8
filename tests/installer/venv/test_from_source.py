# SPDX-License-Identifier: Apache-2.0
"""Tests that what a workload needs from source is built last, against the packages that are
installed then.
"""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.needs import Venv

# Its build fails where what it is built against is not there, as in a build environment of its own.
BACKEND = """\
import pathlib, zipfile

def get_requires_for_build_wheel(config_settings=None):
    return []

def build_wheel(folder, config_settings=None, metadata_directory=None):
    {demand}
    name, info = "built-3-py3-none-any.whl", "built-3.dist-info"
    files = {{
        "built.py": "against = 'small'\\n",
        f"{{info}}/METADATA": "Metadata-Version: 2.1\\nName: built\\nVersion: 3\\nRequires-Dist: nowhere\\n",
        f"{{info}}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }}
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{{info}}/RECORD", "".join(f"{{path}},,\\n" for path in [*files, f"{{info}}/RECORD"]))
    return name
"""
PROJECT = (
    '[build-system]\nrequires = ["nothing-of-that-name"]\nbuild-backend = "backend"\nbackend-path ='
    ' ["."]\n'
)
NEEDS = Venv(name="both", requirements=("small==2", "other"), from_source=("built==3",))


def write_source(folder: Path, demand: str) -> None:
    """An sdist whose build runs ``demand``."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: built\nVersion: 3\n",
        "pyproject.toml": PROJECT,
        "backend.py": BACKEND.format(demand=demand),
    }
    with tarfile.open(folder / "built-3.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            data = text.encode()
            member = tarfile.TarInfo(f"built-3/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


@pytest.fixture
def wheelhouse(make_wheel: Callable[..., Path], tmp_path: Path) -> Path:
    folder = tmp_path / "wheelhouse"
    make_wheel(folder, "small", "2")
    make_wheel(folder, "other", "1")
    return folder


@pytest.mark.parametrize("tool", ["uv", "venv"])
def test_it_is_built_against_what_is_installed(site: Any, wheelhouse: Path, tool: str) -> None:
    write_source(wheelhouse, "import small")
    site.workload("pretrain_a", NEEDS)
    done = site.run("--config", site.answers(venv_type=tool, wheelhouse=str(wheelhouse)), "--yes")
    assert done.returncode == 0, done.stderr
    packages = site.record()["steps"]["venv both"]["facts"]["packages"]
    assert packages.items() >= {"small": "2", "other": "1", "built": "3"}.items()


def test_without_the_cuda_compiler_the_hint_is_to_load_it(site: Any, wheelhouse: Path) -> None:
    write_source(wheelhouse, "raise RuntimeError('CUDA_HOME environment variable is not set')")
    site.workload("pretrain_a", NEEDS)
    done = site.run("--config", site.answers(venv_type="uv", wheelhouse=str(wheelhouse)), "--yes")
    assert done.returncode == 1
    (hint,) = [
        line
        for line in done.stderr.splitlines()
        if line.startswith("hint: ") and "venv-both.log" in line
    ]
    assert "CUDA_HOME" in hint
    assert site.leftovers() == []
