# SPDX-License-Identifier: Apache-2.0
"""Fixtures: an import within this process, and a folder of exemplar-performance with runs of
several releases.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.plugins.loader import load_plugins
from llmb_installer.importing.carry import ImportPlan, carry_out, plan_import
from llmb_testing import exemplar_folder as exemplar

LONG_AGO = 1_750_000_000
BRIDGE = "pretrain_llama3_70b_fp8_cs_gpus64_tp1_pp1_cp1_vpNone_ep1_mbs2_gbs256"


@pytest.fixture
def do_import() -> Callable[..., ImportPlan]:
    """Plans an import and carries it out; keywords are those of ``plan_import`` and
    ``carry_out``.
    """
    plugins = load_plugins(builtin_plugins())

    def run(
        folder: Path,
        into: Path | None = None,
        *,
        dry_run: bool = False,
        checksums: bool = True,
        **more: Any,
    ) -> ImportPlan:
        plan = plan_import(folder, into, plugins, {}, **more)
        if not dry_run:
            carry_out(plan, checksums=checksums, say=lambda text: None)
        return plan

    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder of release 26.05: five runs of four releases, a history of jobs, two sound images
    and a broken one.
    """
    folder = tmp_path / "theirs"
    exemplar.write_config(folder, "26.05")
    exemplar.write_image(folder / "images" / "nvidia+nemo+25.04.01.sqsh")
    exemplar.write_image(folder / "images" / "nvidia+nemo+26.02.01.sqsh", whole=False)
    exemplar.write_image(folder / "images" / "special.sqsh")
    nemotron = {"model": "nemotron4", "size": "15b", "dtype": "fp8", "scale": 64}
    runs: tuple[tuple[int, str, str, dict[str, object]], ...] = (
        (101, "25.05", exemplar.nemo_log(1.98), {}),
        (
            102,
            "25.08",
            exemplar.nemo_log(9.0, late=2.0),
            {"env_overrides": {"NOTE": exemplar.TOKEN, "X": 1}},
        ),
        (103, "25.08", exemplar.nemo_log(1.98), {"profile_enabled": True}),
        (104, "25.07", exemplar.nemo_log(1.98, upto=20), {}),
    )
    for job, release, text, settings in runs:
        config = exemplar.run_config(job, release, **nemotron, **settings)  # type: ignore[arg-type]
        stamp = LONG_AGO + job
        log = exemplar.write_run(
            folder, exemplar.KEYS[1], exemplar.NEMO, job, text, timestamp=stamp, config=config
        )
        os.utime(log, (LONG_AGO, LONG_AGO))
    config = exemplar.run_config(105, "26.02.01", "llama3.1", "70b", "fp8", 64, gpu="gb300")
    exemplar.write_run(
        folder,
        exemplar.KEYS[0],
        BRIDGE,
        105,
        exemplar.bridge_log(256 * 8192 / 64 / 5243, 256),
        config=config,
    )
    exemplar.write_run(
        folder,
        exemplar.KEYS[2],
        "pretrain_grok1_fp8_gpus256",
        106,
        exemplar.bridge_log(3, 256),
    )
    exemplar.write_history(folder, {104: "CANCELLED by 1000", 105: "COMPLETED"})
    return folder
