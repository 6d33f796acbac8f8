# SPDX-License-Identifier: Apache-2.0
"""Tests of where torch is taken from, with the part of pip's real reports that the choice reads."""

from typing import Any

import pytest

from llmb_installer.venv.lock import TorchSource, cuda_packages, index_for, torch_line

PYPI = (
    "torch",
    "cuda-bindings",
    "cuda-toolkit",
    "filelock",
    "fsspec",
    "jinja2",
    "networkx",
    "nvidia-cublas",
    "nvidia-cudnn-cu13",
    "nvidia_nccl_cu13",
    "setuptools",
    "sympy",
    "triton",
    "typing_extensions",
)
CPU = (
    "torch",
    "filelock",
    "fsspec",
    "Jinja2",
    "networkx",
    "setuptools",
    "sympy",
    "typing_extensions",
    "tritonclient",
)


def report(names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "version": "1",
        "install": [{"metadata": {"name": name, "version": "1"}} for name in names],
    }


@pytest.mark.parametrize(
    ("requirements", "line"),
    [
        (("numpy", "torch==2.13.0", "transformers==5.23.0"), "torch==2.13.0"),
        (("torchvision==1", "torch-geometric", "pytorch-lightning"), None),
        ((" Torch >= 2 ; sys_platform == 'linux'",), " Torch >= 2 ; sys_platform == 'linux'"),
        (("torch",), "torch"),
        ((), None),
    ],
)
def test_the_line_that_asks_for_torch(requirements: tuple[str, ...], line: str | None) -> None:
    assert torch_line(requirements) == line


def test_what_only_a_gpu_uses() -> None:
    assert cuda_packages(report(CPU)) == []
    expected = [
        "cuda-bindings",
        "cuda-toolkit",
        "nvidia-cublas",
        "nvidia-cudnn-cu13",
        "nvidia-nccl-cu13",
        "triton",
    ]
    assert cuda_packages(report(PYPI)) == expected


@pytest.mark.parametrize(
    ("source", "names", "index"),
    [
        (TorchSource(cpu_index="cpu"), PYPI, "cpu"),
        (TorchSource(cpu_index="cpu"), CPU, None),
        (TorchSource(), PYPI, None),
        (TorchSource(index="own"), CPU, "own"),
        (TorchSource(index="own", cpu_index="cpu"), PYPI, "own"),
    ],
)
def test_the_index_for_torch(
    source: TorchSource, names: tuple[str, ...], index: str | None
) -> None:
    assert index_for(source, report(names)) == index
