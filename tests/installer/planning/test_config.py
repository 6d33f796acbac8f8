# SPDX-License-Identifier: Apache-2.0
"""Tests of the configuration: what the installer writes, and what it leaves of a user's changes."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st

from llmb.contract.spec import Workload
from llmb.core import yamlfile
from llmb.errors import InputFaults, UsageError
from llmb.plan.config_layers import load_config
from llmb.plan.locate import CONFIG_FILE
from llmb_installer.answers.read import read_answers
from llmb_installer.answers.schema import Answers
from llmb_installer.cluster_types import all_types
from llmb_installer.detect.site import make_site
from llmb_installer.planning.config import compose_own_part, plan_config, read_config, write_config

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
        (
            OURS,
            change(OURS, environment={"A": "1", "B": "2"}),
            change(OURS, environment={"C": "3"}),
            change(OURS, environment={"B": "2", "C": "3"}),
        ),
        (OURS, change(OURS, environment={}), OURS, change(OURS, environment={})),
        (OURS, {}, OURS, OURS),
    ],
    ids=[
        "the installer's change",
        "a user's value",
        "a user's key",
        "both, beside one another",
        "a user's removal",
        "a file that is gone",
    ],
)
def test_what_one_side_changed_is_taken(
    before: dict[str, Any], now: dict[str, Any], ours: dict[str, Any], expected: dict[str, Any]
) -> None:
    planned = plan_config(before, now, ours)
    assert planned.data == expected


@pytest.mark.parametrize(
    ("now", "notes"),
    [
        (change(OURS, gpu_type="h100"), 1),
        (change(OURS, environment={}), 1),
        (change(OURS, experiments_root="/e"), 0),
    ],
    ids=["a value", "a removal", "a key of the user's own"],
)
def test_a_users_change_is_reported_every_time(
    now: dict[str, Any], notes: int, wording: Callable[..., None]
) -> None:
    planned = plan_config(OURS, now, OURS)
    assert planned.data == now
    assert len(planned.kept) == notes
    if notes:
        wording("llmb-install", "\n".join(planned.kept))


def test_what_the_answers_leave_open_may_be_set_by_hand() -> None:
    """Without a note, until the answers have the key too."""
    ours = change(OURS, experiments_root=None, pass_environment=[])
    by_hand = change(ours, experiments_root="/e", pass_environment=["A"])
    planned = plan_config(ours, by_hand, ours)
    assert (planned.data, planned.kept) == (by_hand, ())
    (kept,) = plan_config(ours, by_hand, change(ours, experiments_root="/f")).kept
    assert "experiments_root '/e'" in kept
    assert "experiments_root '/f'" in kept


def test_the_user_wins_where_both_changed_a_value() -> None:
    planned = plan_config(OURS, change(OURS, gpu_type="h100"), change(OURS, gpu_type="b200"))
    assert planned.data["gpu_type"] == "h100"
    (kept,) = planned.kept
    assert "gpu_type 'h100'" in kept
    assert "gpu_type 'b200'" in kept


def test_a_file_written_by_hand_keeps_all_its_values() -> None:
    planned = plan_config({}, change(OURS, gpu_type="h100", environment={}), OURS)
    assert planned.data == change(OURS, gpu_type="h100")
    assert len(planned.kept) == 1


@pytest.mark.parametrize(
    ("before", "now", "ours", "expected", "notes"),
    [
        ([], ["b"], ["a"], ["b", "a"], 0),
        (["a"], ["a", "x"], ["a", "c"], ["a", "x", "c"], 0),
        (["a", "b"], ["a", "b", "x"], ["a"], ["a", "x"], 0),
        (["a", "b"], ["a"], ["a", "b", "c"], ["a", "c"], 1),
        ([], ["nemotron4"], ["pretrain_nemotron4"], ["nemotron4"], 0),
    ],
    ids=["a file by hand", "one by hand", "one removed", "one removed by hand", "another spelling"],
)
def test_lists_of_workloads_are_merged(
    before: list[str], now: list[str], ours: list[str], expected: list[str], notes: int
) -> None:
    def data(names: list[str]) -> dict[str, Any]:
        return {"cluster_type": "local", "workloads": {"installed": names}} if names else {}

    planned = plan_config(data(before), data(now), data(ours))
    assert (planned.data["workloads"]["installed"], len(planned.kept)) == (expected, notes)
    assert plan_config(data(ours), planned.data, data(ours)).data == planned.data


leaves = st.sampled_from(["a", "b", 1, None])
tables = st.recursive(
    leaves, lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, max_size=3), max_leaves=6
)
documents = st.dictionaries(st.sampled_from("pqr"), tables, max_size=3)


@given(documents, documents, documents)
def test_a_second_time_changes_nothing(
    before: dict[str, Any], now: dict[str, Any], ours: dict[str, Any]
) -> None:
    first = plan_config(before, now, ours)
    assert not plan_config(ours, first.data, ours).changed or not first.data


@given(documents, documents)
def test_without_a_users_change_it_is_ours(before: dict[str, Any], ours: dict[str, Any]) -> None:
    assert plan_config(before, before, ours).data == ours


def test_the_runtime_reads_what_is_written(tmp_path: Path) -> None:
    assert write_config(tmp_path, plan_config({}, {}, OURS)) is None
    config, _ = load_config(tmp_path, {"XDG_CONFIG_HOME": str(tmp_path)}, cluster_types=all_types)
    assert config.workloads.installed == ("x",)
    assert config.workloads.config["x"].venv_path == Path("/v")
    assert config.llmb_install == tmp_path
    assert read_config(tmp_path) == OURS


def test_comments_are_kept_in_a_copy(tmp_path: Path) -> None:
    write_config(tmp_path, plan_config({}, {}, OURS))
    path = tmp_path / CONFIG_FILE
    path.write_text(path.read_text() + "experiments_root: /e  # a larger disk\n")
    text = path.read_text()
    note = write_config(
        tmp_path, plan_config(OURS, read_config(tmp_path), change(OURS, gpu_type="h100"))
    )
    assert note is not None
    assert path.with_name("cluster_config.yaml.before").read_text() == text
    assert read_config(tmp_path)["experiments_root"] == "/e"


def test_another_cluster_type_is_left_alone() -> None:
    with pytest.raises(UsageError) as refused:
        plan_config({}, change(OURS, cluster_type="slurm"), OURS)
    assert (refused.value.code, refused.value.value) == ("cluster-type-differs", "slurm")


def test_an_invalid_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / CONFIG_FILE).write_text(yaml.safe_dump(change(OURS, gpu_typ="cpu")))
    with pytest.raises(InputFaults) as refused:
        read_config(tmp_path)
    assert (refused.value.code, refused.value.key) == ("key-unknown", "gpu_typ")


def test_an_invalid_configuration_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputFaults):
        write_config(tmp_path, plan_config({}, {}, change(OURS, gpu_type="none")))
    assert not (tmp_path / CONFIG_FILE).exists()


SLURM = """cluster_type: slurm
cluster_name: big
gpu_type: h100
gpu_types: {h200: {like: h100, partition: new, gres: "h200:8", gpus_per_node: 8}}
node_architecture: x86_64
venv_type: uv
method: sbatch
experiments_root: /scratch/runs
image_folder: /shared/images
environment: {NCCL_DEBUG: WARN}
pass_environment: [SITE_PROXY]
slurm: {account: team, container: CONTAINER, mpi: pmix, gpu: {partition: batch, gres: 8}, cpu: {gres: null}}
"""
RUNAI = """cluster_type: runai
gpu_type: h100
node_architecture: x86_64
runai: {base_url: https://host/api/v1, project: p, pvc: {name: w, path: /w, claim: c}}
"""
LOCAL = "cluster_type: local\ngpu_type: cpu\nnode_architecture: x86_64\nvenv_type: venv\n"


def settled(text: str, install: Path, workloads: dict[str, Workload]) -> Answers:
    return read_answers(yamlfile.parse(text, name="a.yaml"), install=install, workloads=workloads)


def written(text: str, install: Path, workloads: dict[str, Workload]) -> dict[str, Any]:
    answers = settled(text, install, workloads)
    ours = compose_own_part(answers, make_site(answers, answers.gpu_type), workloads, [])
    write_config(install, plan_config({}, {}, ours))
    return read_config(install)


def test_the_configuration_of_a_slurm_cluster(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    data = written(SLURM.replace("CONTAINER", "pyxis"), tmp_path, workloads)
    assert data["slurm"]["cpu"] == {"gres": None}, "null unsets the common option"
    assert "qos" not in data["slurm"]
    assert "runai" not in data
    assert data["install"] == {
        "venv_type": "uv",
        "method": "slurm",
        "node_architecture": "x86_64",
        "image_folder": "/shared/images",
    }
    config, _ = load_config(tmp_path, {"XDG_CONFIG_HOME": str(tmp_path)}, cluster_types=all_types)
    assert config.gpu("h200").gpus_per_node == 8
    assert config.experiments_root == Path("/scratch/runs")
    assert config.pass_environment == ("SITE_PROXY",)
    assert config.slurm is not None
    assert config.slurm.option("gres", "cpu") is None


def test_a_configuration_has_the_keys_that_people_look_for(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    """Without those of other cluster types and unset options."""
    data = written(LOCAL, tmp_path, workloads)
    assert {*data} == {
        "schema_version",
        "cluster_type",
        "cluster_name",
        "llmb_install",
        "experiments_root",
        "gpu_type",
        "environment",
        "pass_environment",
        "install",
        "workloads",
    }
    assert (data["experiments_root"], data["pass_environment"]) == (None, [])
    assert {*data["install"]} == {"venv_type", "method", "node_architecture", "image_folder"}
    assert {*written(RUNAI, tmp_path, workloads)["runai"]} == {"base_url", "project", "pvc"}


def test_the_configuration_has_the_framework_of_the_answers(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    """Planning takes it as its default; without an answer it is omitted, as in files of earlier
    releases.
    """
    chosen = "framework: bridge\nbridge_release: '26.02.01'\n"
    assert "framework" not in written(RUNAI, tmp_path, workloads)["install"]
    (tmp_path / "second").mkdir()
    own = written(RUNAI + chosen, tmp_path / "second", workloads)["install"]
    assert (own["framework"], own["bridge_release"]) == ("bridge", "26.02.01")
    config, _ = load_config(
        tmp_path / "second", {"XDG_CONFIG_HOME": str(tmp_path)}, cluster_types=all_types
    )
    assert (config.install.framework, config.install.bridge_release) == ("bridge", "26.02.01")


@pytest.mark.parametrize(
    ("text", "job", "expected"),
    [
        (
            SLURM.replace("CONTAINER", "pyxis"),
            ("-s", "15b", "--dtype", "fp8", "--scale", "16"),
            "#SBATCH --account=team",
        ),
        (
            SLURM.replace("CONTAINER", "none"),
            ("-s", "tiny", "--dtype", "bf16", "--scale", "8"),
            "--partition=batch",
        ),
        (RUNAI, ("-s", "15b", "--dtype", "fp8", "--scale", "16"), ""),
        (LOCAL, ("-s", "tiny", "--dtype", "bf16", "--scale", "1"), "llmb_workloads.torch_pretrain"),
    ],
    ids=["slurm with pyxis", "slurm without", "runai", "local"],
)
def test_llmb_run_plans_by_it(
    tmp_path: Path,
    workloads: dict[str, Workload],
    llmb_run: Callable[..., subprocess.CompletedProcess[str]],
    text: str,
    job: tuple[str, ...],
    expected: str,
) -> None:
    written(text, tmp_path, workloads)
    done = llmb_run(
        "single", "-w", "nemotron4", *job, "--dry-run", "--format", "json", "--install", tmp_path
    )
    assert done.returncode == 0, done.stderr
    planned = json.loads(done.stdout)["jobs"][0]
    assert planned["gpu_type"] == ("cpu" if text == LOCAL else "h100")
    assert expected in (planned["script"] or "")


def test_a_users_options_of_slurm_are_kept(tmp_path: Path, workloads: dict[str, Workload]) -> None:
    before = written(SLURM.replace("CONTAINER", "pyxis"), tmp_path, workloads)
    by_hand = {**before, "slurm": {**before["slurm"], "qos": "high", "account": "mine"}}
    answers = settled(
        SLURM.replace("CONTAINER", "none").replace("mpi: pmix, ", ""), tmp_path, workloads
    )
    ours = compose_own_part(answers, make_site(answers, answers.gpu_type), workloads, [])
    planned = plan_config(before, by_hand, ours)
    slurm = planned.data["slurm"]
    assert (slurm["qos"], slurm["account"], slurm["container"]) == ("high", "mine", "none")
    assert "mpi" not in slurm, "a key that only the installer set is removed with its answer"
    (kept,) = planned.kept
    assert "slurm.account 'mine'" in kept
    assert "slurm.account 'team'" in kept
