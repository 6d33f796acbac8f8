# SPDX-License-Identifier: Apache-2.0
"""Tests of the configuration: what the installer writes, and what it leaves of a user's changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llmb.config import CONFIG_FILE, load_config
from llmb.errors import InputFaults, UsageError
from llmb_installer.config import plan_config, read_config, write_config

OURS: dict[str, Any] = {
    "schema_version": 2,
    "cluster_type": "local",
    "gpu_type": "cpu",
    "environment": {"A": "1"},
    "workloads": {"installed": ["x"], "config": {"x": {"venv_path": "/v", "environment": {}}}},
}


def change(data: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {**data, **keys}


def test_a_new_file() -> None:
    planned = plan_config({}, {}, OURS)
    assert (planned.data, planned.changed, planned.kept) == (OURS, True, ())


def test_nothing_new() -> None:
    assert not plan_config(OURS, OURS, OURS).changed


@pytest.mark.parametrize(
    ("before", "now", "ours", "expected"),
    [
        (OURS, OURS, change(OURS, gpu_type="h100"), change(OURS, gpu_type="h100")),
        (OURS, change(OURS, gpu_type="h100"), OURS, change(OURS, gpu_type="h100")),
        (OURS, change(OURS, experiments_root="/e"), OURS, change(OURS, experiments_root="/e")),
        (OURS, change(OURS, environment={"A": "1", "B": "2"}), change(OURS, environment={"C": "3"}),
         change(OURS, environment={"B": "2", "C": "3"})),
        (OURS, change(OURS, environment={}), OURS, change(OURS, environment={})),
        (OURS, {}, OURS, OURS),
    ],
    ids=["the installer's change", "a user's value", "a user's key", "both, beside one another", "a user's removal",
         "a file that is gone"],
)  # fmt: skip
def test_what_one_side_changed_is_taken(
    before: dict[str, Any], now: dict[str, Any], ours: dict[str, Any], expected: dict[str, Any]
) -> None:
    planned = plan_config(before, now, ours)
    assert planned.data == expected
    assert planned.kept == ()


def test_what_both_changed_is_the_users_and_said() -> None:
    planned = plan_config(OURS, change(OURS, gpu_type="h100"), change(OURS, gpu_type="b200"))
    assert planned.data["gpu_type"] == "h100"
    assert planned.kept == ("cluster_config.yaml keeps gpu_type 'h100'; the answers give gpu_type 'b200'",)


def test_a_file_of_somebody_else_keeps_all_its_values() -> None:
    planned = plan_config({}, change(OURS, gpu_type="h100", environment={}), OURS)
    assert planned.data == change(OURS, gpu_type="h100")
    assert len(planned.kept) == 1


leaves = st.sampled_from(["a", "b", 1, None])
tables = st.recursive(leaves, lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, max_size=3), max_leaves=6)
documents = st.dictionaries(st.sampled_from("pqr"), tables, max_size=3)


@given(documents, documents, documents)
def test_a_second_time_changes_nothing(before: dict[str, Any], now: dict[str, Any], ours: dict[str, Any]) -> None:
    first = plan_config(before, now, ours)
    assert not plan_config(ours, first.data, ours).changed or not first.data


@given(documents, documents)
def test_without_a_users_change_it_is_ours(before: dict[str, Any], ours: dict[str, Any]) -> None:
    assert plan_config(before, before, ours).data == ours


def test_the_runtime_reads_what_is_written(tmp_path: Path) -> None:
    assert write_config(tmp_path, plan_config({}, {}, OURS)) is None
    config, _ = load_config(tmp_path, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert config.workloads.installed == ("x",)
    assert config.workloads.config["x"].venv_path == Path("/v")
    assert config.llmb_install == tmp_path
    assert read_config(tmp_path) == OURS


def test_comments_are_saved_beside(tmp_path: Path) -> None:
    write_config(tmp_path, plan_config({}, {}, OURS))
    path = tmp_path / CONFIG_FILE
    path.write_text(path.read_text() + "experiments_root: /e  # more room there\n")
    text = path.read_text()
    said = write_config(tmp_path, plan_config(OURS, read_config(tmp_path), change(OURS, gpu_type="h100")))
    assert said is not None
    assert path.with_name("cluster_config.yaml.before").read_text() == text
    assert read_config(tmp_path)["experiments_root"] == "/e"


def test_another_cluster_type_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / CONFIG_FILE).write_text(yaml.safe_dump(change(OURS, cluster_type="slurm")))
    with pytest.raises(UsageError, match="is for cluster type slurm"):
        read_config(tmp_path)


def test_a_faulty_file_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / CONFIG_FILE).write_text(yaml.safe_dump(change(OURS, gpu_typ="cpu")))
    with pytest.raises(InputFaults, match="'gpu_typ' is not a key here"):
        read_config(tmp_path)


def test_a_faulty_one_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputFaults):
        write_config(tmp_path, plan_config({}, {}, change(OURS, gpu_type="none")))
    assert not (tmp_path / CONFIG_FILE).exists()
