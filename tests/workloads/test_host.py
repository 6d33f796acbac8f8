# SPDX-License-Identifier: Apache-2.0
"""The program knows whether its CPU has bf16, and how much memory it takes."""

from pathlib import Path

import pytest

from llmb_workloads.node import cpu_has_bf16, resident_memory


@pytest.mark.parametrize(
    ("cpuinfo", "has"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx512f avx512_bf16 amx_tile\n", True),
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f\nbf16\n", False),
        ("processor\t: 0\nFeatures\t: fp asimd sve bf16\n", True),
        ("", False),
    ],
)
def test_bf16_is_read_from_the_flags(tmp_path: Path, cpuinfo: str, has: bool) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(cpuinfo, encoding="utf-8")
    assert cpu_has_bf16(file) is has


def test_a_system_without_flags_has_none(tmp_path: Path) -> None:
    assert not cpu_has_bf16(tmp_path / "none")


def test_resident_memory_is_in_bytes() -> None:
    peak, present = resident_memory()
    assert peak >= present > 2**20
