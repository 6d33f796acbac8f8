# SPDX-License-Identifier: Apache-2.0
"""Tests of finding out what the machine is."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from llmb_installer.place import find_gpu, type_of


@pytest.mark.parametrize(
    ("names", "gpu_type"),
    [
        ("NVIDIA H100 80GB HBM3\nNVIDIA H100 80GB HBM3\n", "h100"),
        ("NVIDIA A100-SXM4-80GB\n", "a100"),
        ("NVIDIA GB200\n", "gb200"),
        ("NVIDIA B200\n", "b200"),
        ("\n", "cpu"),
    ],
)
def test_the_type_of_a_product_name(names: str, gpu_type: str) -> None:
    found = type_of(names)
    assert (found.gpu_type, found.note) == (gpu_type, "")


def test_an_unknown_gpu_is_said() -> None:
    found = type_of("Quadro RTX 6000\n")
    assert found.gpu_type == "cpu"
    assert "Quadro RTX 6000" in found.note


def nvidia_smi(folder: Path, text: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_auto_asks_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpu("auto").gpu_type == "cpu"
    nvidia_smi(tmp_path, "echo 'NVIDIA H100 PCIe'")
    assert find_gpu("auto").gpu_type == "h100"
    assert find_gpu("cpu").gpu_type == "cpu"


def test_a_driver_without_a_gpu_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    nvidia_smi(tmp_path, "echo 'No devices were found'; exit 6")
    found = find_gpu("auto")
    assert found.gpu_type == "cpu"
    assert "No devices were found" in found.note
