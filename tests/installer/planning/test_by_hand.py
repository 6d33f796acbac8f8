# SPDX-License-Identifier: Apache-2.0
"""Tests of what is added to, and taken out of, an installation whose cluster_config.yaml somebody
wrote or copied.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb.contract.needs import Venv
from llmb_installer.applying import show
from llmb_installer.record import InstallRecord

SMALL = Venv(name="small", requirements=("small==1",))


def by_hand(site: Any, **keys: Any) -> Path:
    """A configuration written without the installer."""
    site.install.mkdir()
    path: Path = site.install / "cluster_config.yaml"
    path.write_text(yaml.safe_dump({"cluster_type": "local", "gpu_type": "cpu", **keys}))
    return path


def run(site: Any, *words: str) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = site.run(*words, "--yes", "--install", site.install)
    return done


def test_an_addition_asks_no_questions(site: Any) -> None:
    """Every answer is in the configuration, or is detected; other workloads stay as they are
    there.
    """
    site.workload("pretrain_a", SMALL)
    site.workload("pretrain_b", Venv(name="huge", requirements=("nowhere==1",)))
    mine = {"venv_path": str(site.folder), "environment": {"MINE": "1"}}
    path = by_hand(
        site,
        environment={"NCCL_DEBUG": "WARN"},
        workloads={"installed": ["b"], "config": {"pretrain_b": mine}},
    )
    done = run(site, "add", "pretrain_a")
    assert (done.returncode, "nowhere" in done.stdout) == (0, False), done.stderr
    config = yaml.safe_load(path.read_text())
    assert config["environment"] == {"NCCL_DEBUG": "WARN"}
    assert config["workloads"]["installed"] == ["b", "pretrain_a"]
    assert config["workloads"]["config"]["pretrain_b"] == mine
    assert config["workloads"]["config"]["pretrain_a"]["venv_path"] == str(
        site.install / "venvs" / "small"
    )
    assert "cluster_config.yaml keeps" not in done.stdout + done.stderr
    again = run(site, "add", "pretrain_a")
    assert again.stdout.startswith("Nothing to do:"), again.stdout
    assert run(site, "add", "pretrain_b").returncode == 1, "now it is asked for"


def test_a_copied_configuration_leads_to_what_was_built(site: Any) -> None:
    """That of the other folder is not used for the workload; its variables stay."""
    site.workload("pretrain_a", SMALL)
    old = {"venv_path": "/old/venvs/small", "venv_type": "uv", "environment": {"MINE": "1"}}
    path = by_hand(
        site,
        llmb_install="/old",
        workloads={"installed": ["pretrain_a"], "config": {"pretrain_a": old}},
    )
    done = run(site, "add", "pretrain_a")
    assert done.returncode == 0, done.stderr
    config = yaml.safe_load(path.read_text())
    assert config["llmb_install"] == str(site.install)
    assert config["workloads"]["installed"] == ["pretrain_a"]
    own = config["workloads"]["config"]["pretrain_a"]
    assert (own["venv_path"], own["environment"]) == (
        str(site.install / "venvs/small"),
        {"MINE": "1"},
    )
    assert site.run("verify", "--install", site.install).returncode == 0


def test_missing_keys_are_named(site: Any, wording: Callable[..., None]) -> None:
    site.workload("pretrain_a", SMALL)
    path = by_hand(site)
    path.write_text("cluster_type: runai\ngpu_type: h100\nrunai: null\n")
    done = run(site, "add", "pretrain_a")
    assert done.returncode == 2
    wording("llmb-install add", done.stderr)


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_setting_neither_moves_the_installation_nor_drops_workloads(
    is_recorded: bool, site: Any
) -> None:
    for key in ("pretrain_a", "pretrain_b"):
        site.workload(key, SMALL)
    path = by_hand(site)
    assert not is_recorded or run(site, "add", "pretrain_a").returncode == 0
    before = path.read_text()
    for setting in ("workloads=[pretrain_b]", f"install={site.folder / 'other'}", "workloads ="):
        done = run(site, "add", "pretrain_b", "--set", setting)
        assert done.returncode == 2, done.stderr
        assert (path.read_text(), (site.folder / "other").exists()) == (before, False)


def test_a_wrong_setting_is_no_key_that_the_configuration_lacks(site: Any) -> None:
    site.workload("pretrain_a", SMALL)
    path = by_hand(site)
    done = run(site, "add", "pretrain_a", "--set", "framework=other")
    assert done.returncode == 2
    assert "--set framework" in done.stderr
    assert str(path) not in done.stderr


def test_a_configuration_that_names_no_workloads(site: Any) -> None:
    site.workload("pretrain_a", SMALL)
    path = by_hand(site)
    assert run(site, "add", "pretrain_a").returncode == 0
    assert yaml.safe_load(path.read_text())["workloads"]["installed"] == ["pretrain_a"]
    assert site.run("verify", "--install", site.install).returncode == 0


def test_removed_from_it(site: Any) -> None:
    """Only the named workload, with its whole entry."""
    site.workload("pretrain_a", SMALL)
    site.workload("pretrain_b", SMALL)
    entries = {"pretrain_a": {"venv_path": "/a"}, "pretrain_b": {"venv_path": "/b"}}
    path = by_hand(site, workloads={"installed": ["pretrain_a", "pretrain_b"], "config": entries})
    done = run(site, "remove", "pretrain_a")
    assert done.returncode == 0, done.stderr
    config = yaml.safe_load(path.read_text())["workloads"]
    assert config == {"installed": ["pretrain_b"], "config": {"pretrain_b": {"venv_path": "/b"}}}


def test_a_workload_with_its_own_environment_is_found_in_any_spelling(site: Any) -> None:
    site.workload("pretrain_a", SMALL)
    site.workload("pretrain_b", SMALL)
    mine = {"pretrain_b": {"venv_path": str(site.folder)}}
    path = by_hand(site, workloads={"installed": ["B"], "config": mine})
    assert run(site, "add", "pretrain_a").returncode == 0
    done = site.run("verify", "--install", site.install)
    assert done.returncode == 0, done.stderr
    assert run(site, "remove", "pretrain_b").returncode == 0
    left = yaml.safe_load(path.read_text())["workloads"]
    assert (left["installed"], [*left["config"]]) == (["pretrain_a"], ["pretrain_a"])


def test_a_workload_that_is_only_listed_is_reported_with_its_installation(
    site: Any, wording: Callable[..., None]
) -> None:
    site.workload("pretrain_a", SMALL)
    path = by_hand(site)
    run(site, "add", "pretrain_a")
    config = yaml.safe_load(path.read_text())
    config["workloads"]["installed"].append("pretrain_b")
    path.write_text(yaml.safe_dump(config))
    done = site.run("verify", "--install", site.install)
    assert done.returncode == 1
    assert site.faults() == [("config", "workload-not-installed", "pretrain_b")]
    wording("llmb-install verify", done.stderr)


def test_another_spelling_without_the_answers_is_still_what_was_built(site: Any) -> None:
    site.workload("pretrain_a", SMALL)
    path = by_hand(site)
    run(site, "add", "pretrain_a")
    (site.install / ".llmb" / "answers.yaml").unlink()
    path.write_text(path.read_text().replace("- pretrain_a", "- A"))
    done = site.run("verify", "--install", site.install)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_workloads_the_next_command_adds_one(
    tmp_path: Path, wording: Callable[..., None]
) -> None:
    wording("llmb-install", show.summarize(tmp_path, InstallRecord(), ()))


@pytest.mark.parametrize("key", ["node_architecture", "gpu_type"])
def test_what_was_detected_once_is_not_detected_again(site: Any, key: str) -> None:
    """A cluster that does not answer, as here without Slurm, does not prevent the removal of
    workloads.
    """
    site.settings = {
        "cluster_type": "slurm",
        "slurm": {"container": "none"},
        "gpu_type": "cpu",
        "venv_type": "uv",
        "node_architecture": "x86_64",
    }
    site.workload("pretrain_a", SMALL)
    assert site.run().returncode == 0
    answers = site.install / ".llmb" / "answers.yaml"
    lines = answers.read_text().splitlines(keepends=True)
    answers.write_text("".join(line for line in lines if not line.startswith(f"{key}:")))
    for words in (("verify",), ("status",), ("remove", "pretrain_a", "--yes")):
        done = site.run(*words, "--install", site.install)
        assert done.returncode == 0, done.stderr
        assert key not in done.stderr


def test_what_slurm_does_not_report_is_named_by_its_place(site: Any) -> None:
    """The place is in the configuration; there is no Slurm on PATH."""
    site.workload("pretrain_a", SMALL)
    path = by_hand(site)
    path.write_text("cluster_type: slurm\ngpu_type: h100\nslurm: {container: none}\n")
    python_alone = site.folder / "bin"
    python_alone.mkdir()
    done = site.run("add", "pretrain_a", "--yes", "--install", site.install, PATH=str(python_alone))
    assert done.returncode == 2
    assert done.stderr.startswith("error: install.node_architecture: ")
    assert "{node_architecture: x86_64}" in done.stderr
