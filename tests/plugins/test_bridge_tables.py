# SPDX-License-Identifier: Apache-2.0
"""Holds releases and published figures to NVIDIA's own tables, which docs/nvidia keeps."""

import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from llmb.builtin.nvidia_images import releases

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "figures.py"
#: Lines of each release's pretraining tables, as counted on NVIDIA's pages.
LINES = {
    "26.08": 18,
    "26.06.01": 14,
    "26.06": 31,
    "26.04.01": 47,
    "26.04": 44,
    "26.02.01": 36,
    "26.02": 33,
    "25.11": 28,
    "25.09": 17,
}
PAGE = """
# Performance
| not | a table of figures |
|---|---|
## 26.06 NeMo Container
### Pre-Training Performance
#### Model: GPT OSS 120B
| System | #-GPUs | Precision | GBS | MBS | Sequence Length | TP | PP | CP | VP | EP |\
 Tokens / sec / GPU | Model TFLOP / sec / GPU |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
| DGX-GB300 | 64 | MXFP8 | 1280 | 4 | 4096 | 1 | 1 | 1 | n/a | 16 | 20288 | 661[^note] |
## 25.09 NeMo Container
### Pre-Training Performance
#### System: DGX-GB200
| Model | #-GPUs | GBS | MBS | Sequence Length | FSDP | TP | PP | CP | VP | EP | GA |\
 Tokens / sec / GPU | Model TFLOP / sec / GPU |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
| LLAMA3_70B | 64 | 128 | 2 | 8192 | 64 (0) | 1 (2) | 1 (4) | 1 | 1 (5) | 1 | 1 (16) |\
 3986 (3546) | 1791 (1593) |
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_releases_are_those_of_nvidias_list(script: ModuleType) -> None:
    versions = {line["release"]: line["bridge"] for line in script.read_table(script.VERSIONS)}
    assert {name: release.bridge for name, release in releases().items()} == {
        name: versions.get(name) for name in releases()
    }
    listed = [name for name in versions if name in releases()]
    assert list(releases()) == listed, "the newest first"


def test_every_published_line_is_kept(script: ModuleType) -> None:
    lines = script.read_table(script.FIGURES)
    kept = Counter(line["release"] for line in lines if line["task"] == "pretraining")
    assert kept == LINES
    assert sum(LINES.values()) == 268
    for line in lines:
        for half in script.split(line):
            assert float(half["tokens_per_second_per_gpu"]) > 0
            assert float(half["tflops_per_gpu"]) > 0


def test_a_page_is_read_as_printed(script: ModuleType) -> None:
    """Footnotes are no part of a number; a pair in parentheses is two configurations."""
    first, second = script.lines_of(PAGE)
    assert (first["release"], first["model"], first["tflops_per_gpu"]) == (
        "26.06",
        "GPT OSS 120B",
        "661",
    )
    halves = [
        tuple(half[name] for name in ("system", "dtype", "tp", "pp", "vp", "tflops_per_gpu"))
        for half in script.split(second)
    ]
    assert halves == [
        ("DGX-GB200", "fp8_cs", "1", "1", "1", "1791"),
        ("DGX-GB200", "fp8_mx", "2", "4", "5", "1593"),
    ]


def test_pages_are_renewed_with_their_digests(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in script.PAGES:
        (tmp_path / name).write_text(PAGE, encoding="utf-8")
    (tmp_path / script.LIST).write_text(
        '[{"version": "nightly"}, {"name": "0.6.0 (latest) · 26.08", "version": "0.6.0"}]',
        encoding="utf-8",
    )
    monkeypatch.setattr(script, "TABLES", tmp_path)
    monkeypatch.setattr(script, "FIGURES", tmp_path / "figures.csv")
    monkeypatch.setattr(script, "VERSIONS", tmp_path / "versions.csv")
    script.renew(tmp_path)
    assert script.read_table(script.VERSIONS) == [{"bridge": "0.6.0", "release": "26.08"}]
    assert len(script.read_table(script.FIGURES)) == 4
    page = tmp_path / script.PAGES[0]
    digest = subprocess.run(
        ["sha256sum", page], capture_output=True, text=True, check=True
    ).stdout.split()[0]
    assert f"{page.name} sha256:{digest}" in script.FIGURES.read_text(encoding="utf-8")


def test_the_files_are_current() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
