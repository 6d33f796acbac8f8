# SPDX-License-Identifier: Apache-2.0
"""Tests that ``llmb-config_<JOB>.yaml`` beside a log says what ran, as the launcher of each release
writes it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from llmb_exemplar import llmb_log_settings
from llmb_testing import exemplar_folder as exemplar

LOG = "log-x_7001_0.out"


def write(folder: Path, job: int, release: str = "25.08", **settings: Any) -> Path:
    data = exemplar.run_config(job, release, "nemotron", "15b", "fp8", 64, **settings)
    path = folder / f"llmb-config_{job}.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


def test_the_settings_of_a_run(tmp_path: Path) -> None:
    write(tmp_path, 7001, "26.08.00", mbridge_args=["--a.b=1", "flag"], env_overrides={"X": 2})
    settings = llmb_log_settings(tmp_path / LOG)
    assert settings is not None
    assert (settings.workload, settings.size) == ("pretrain_nemotron4", "15b")
    assert (settings.gpu_type, settings.gpus, settings.gpus_per_node) == ("h100", 64, 8)
    assert (settings.framework, settings.release) == ("bridge", "26.08.00")
    assert settings.image == "nvcr.io/nvidia/nemo:26.08.00"
    assert (settings.dotted, settings.env) == ({"a.b": "1", "flag": "true"}, {"X": "2"})
    assert (settings.job, settings.launcher_release) == ("7001", "26.08.00")


@pytest.mark.parametrize(
    ("release", "steps", "window"),
    [
        ("25.05", 50, None),
        ("25.07", 50, None),
        ("25.08", 50, (35, 44)),
        ("26.08.00", 50, (35, 44)),
        ("25.08", 20, None),
        ("unknown", 50, None),
    ],
)
def test_the_window_of_a_release(
    release: str, steps: int, window: tuple[int, int] | None, tmp_path: Path
) -> None:
    write(tmp_path, 7001, release)
    settings = llmb_log_settings(tmp_path / LOG)
    assert settings is not None
    assert settings.window_of(steps) == window


@pytest.mark.parametrize(
    ("name", "others", "is_its"),
    [
        ("llmb-config_7001.yaml", [LOG, "log-x_7002_0.out"], True),
        ("llmb-config_7002.yaml", [LOG, "log-x_7002_0.out"], False),
        ("llmb-config_7002.yaml", [LOG], True),
        ("x/llmb-config_7001.yaml", [LOG], False),
        ("../llmb-config_7001.yaml", [LOG], True),
    ],
)
def test_a_file_belongs_to_the_log_of_its_job(
    name: str, others: list[str], is_its: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for other in others:
        (folder / other).touch()
    place = (folder / name).resolve()
    place.parent.mkdir(exist_ok=True)
    write(place.parent, int(place.stem.rpartition("_")[2]))
    assert (llmb_log_settings(folder / LOG) is not None) == is_its


@pytest.mark.parametrize("text", ["", "- a", "a: [", "job_info: 7", "\0"])
def test_a_damaged_file_says_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "llmb-config_7001.yaml").write_text(text)
    settings = llmb_log_settings(tmp_path / LOG)
    assert settings is None or settings.workload is None


@pytest.mark.parametrize(
    ("value", "verdict"), [(True, "INVALID"), ("yes", "INVALID"), (False, "PASS")]
)
def test_a_profiled_run_is_invalid(
    value: object, verdict: str, tmp_path: Path, llmb_here: Callable[..., CompletedProcess[str]]
) -> None:
    write(tmp_path, 7001, "25.05", profile_enabled=value)
    log = tmp_path / f"log-{exemplar.NEMO}_7001_0.out"
    log.write_text(exemplar.nemo_log(1.98))
    done = llmb_here("parse", log, "--format", "json")
    (result,) = json.loads(done.stdout)["results"]
    assert result["verdict"] == verdict
    profiled = "profiled: llmb-config_7001.yaml has profile_enabled: true"
    assert (profiled in result["invalid"]) == (verdict == "INVALID")
