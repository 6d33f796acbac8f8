# SPDX-License-Identifier: Apache-2.0
"""Tests of what is done to an install directory later: verify, repair, add, remove; and of a
failure beside others.
"""

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb.contract.needs import HubAsset, Repo, Task, Venv
from llmb.core import locks
from llmb.errors import LlmbError
from llmb.run import store
from llmb_installer import record
from llmb_installer.commands import uninstall
from llmb_installer.steps import programs
from llmb_testing.hub import SmallHub

Wording = Callable[..., None]
SMALL, OTHER = (
    Venv(name="small", requirements=("small==1",)),
    Venv(name="other", requirements=("other==1",)),
)


def version(site: Any, package: str) -> str:
    """What the environment itself says of its package."""
    python = site.install / "venvs" / package / "bin" / "python"
    argv = [python, "-c", f"import {package}; print({package}.__version__)"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def module(site: Any, package: str) -> Path:
    (found,) = (site.install / "venvs" / package).glob(f"lib/python3*/site-packages/{package}.py")
    return Path(found)


@pytest.fixture(scope="module")
def installed(install_once: Callable[..., Any]) -> Any:
    """Two workloads that share one environment, and one of them has another one too."""
    return install_once({"pretrain_a": (SMALL,), "pretrain_b": (SMALL, OTHER)})


@pytest.fixture
def both(installed: Any) -> Any:
    return installed.site()


@pytest.fixture
def wording(wording: Wording, request: pytest.FixtureRequest) -> Wording:
    """Hides the folder of ``both`` too."""
    folder = (
        {str(request.getfixturevalue("both").folder): "<tmp>"}
        if "both" in request.fixturenames
        else {}
    )
    return lambda command, text, hidden=None: wording(command, text, {**folder, **(hidden or {})})


def test_a_complete_installation(both: Any, wording: Wording) -> None:
    done = both.run("verify", "--install", both.install)
    assert (done.returncode, done.stderr) == (0, "")
    wording("llmb-install verify", done.stdout)


def test_a_missing_environment_is_built_again(both: Any) -> None:
    (both.install / "venvs" / "small").unlink()
    assert both.run("verify", "--install", both.install).returncode == 1
    status = both.run("status", "--format", "json", "--install", both.install)
    there = {row["step"]: row["there"] for row in json.loads(status.stdout)["steps"]}
    assert there == {"venv small": False, "venv other": True, f"programs {programs.NAME}": True}
    assert both.run().returncode == 0
    assert version(both, "small") == "1"
    assert both.leftovers() == []


def test_a_python_that_is_gone(both: Any) -> None:
    """Its repair does not take what is there for whole, though every package is."""
    (both.install / "venvs" / "small" / "bin" / "python").unlink()
    assert both.run("verify", "--install", both.install).returncode == 1
    done = both.run("verify", "--repair", "--yes", "--install", both.install)
    assert done.returncode == 0, done.stderr
    assert version(both, "small") == "1"


def test_a_configuration_that_cannot_be_read(both: Any) -> None:
    path = both.install / "cluster_config.yaml"
    path.write_text(path.read_text().replace("gpu_type: cpu", "gpu_type: cpx"))
    assert [(step, key) for step, _, key in both.faults()] == [("config", "gpu_type")]


def test_a_failed_repair_is_remembered(both: Any) -> None:
    """Without its index verify and status report the damage until a repair succeeds."""
    module(both, "other").write_text("broken by hand\n")
    failed = both.run(
        "verify",
        "--deep",
        "--repair",
        "--yes",
        "--install",
        both.install,
        PIP_FIND_LINKS="/nowhere",
    )
    assert failed.returncode == 1
    module(both, "other").write_text("__version__ = '1'\n")
    assert both.faults() == [("venv other", "repair-unfinished", "")]
    status = json.loads(both.run("status", "--format", "json", "--install", both.install).stdout)
    assert [row["step"] for row in status["steps"] if not row["there"]] == ["venv other"]
    repaired = both.run("verify", "--repair", "--yes", "--install", both.install)
    assert repaired.returncode == 0, repaired.stderr
    assert both.run("verify", "--deep", "--install", both.install).returncode == 0


def test_an_unfinished_step_is_a_fault(both: Any, wording: Wording) -> None:
    path = both.install / ".llmb" / "install.json"
    record = json.loads(path.read_text())
    del record["steps"]["venv other"]
    path.write_text(json.dumps(record))
    assert both.faults() == [("venv other", "never-finished", "")]
    shown = both.run("status", "--install", both.install)
    wording("llmb-install status", f"{shown.stdout.splitlines()[-1]}\n{shown.stderr}")
    data = json.loads(both.run("status", "--install", both.install, "--format", "json").stdout)
    assert data["missing"] == ["venv other"]


def test_a_workload_of_a_later_plugin_is_a_note(both: Any, wording: Wording) -> None:
    """Where the answers ask for all workloads: the note names the command, and no repair installs
    it.
    """
    answers = both.answers(workloads=None)
    assert both.run("--config", answers, "--yes").returncode == 0
    both.workload("pretrain_late", Venv(name="late", requirements=("small==1",)))
    done = both.run("verify", "--install", both.install)
    assert done.returncode == 0
    wording("llmb-install verify", done.stderr)
    data = json.loads(both.run("verify", "--install", both.install, "--format", "json").stdout)
    assert (data["whole"], data["faults"], data["not_installed"]) == (True, [], ["pretrain_late"])

    (both.install / "venvs" / "small").unlink()
    done = both.run("verify", "--repair", "--yes", "--install", both.install)
    assert done.returncode == 0, done.stderr
    assert not (both.install / "venvs" / "late").exists()
    assert "workloads" not in yaml.safe_load((both.install / ".llmb/answers.yaml").read_text())
    assert both.run("add", "pretrain_late", "--yes", "--install", both.install).returncode == 0
    assert both.run("verify", "--install", both.install).stderr == ""


def test_a_workload_that_failed_is_not_a_later_one(both: Any) -> None:
    both.workload("pretrain_bad", Venv(name="bad", requirements=("nowhere==1",)))
    assert both.run("--config", both.answers(workloads=None), "--yes").returncode == 1
    assert both.faults() == [("venv bad", "never-finished", "")]
    assert "pretrain_bad" not in both.run("verify", "--install", both.install).stderr


def test_an_installation_as_data(both: Any) -> None:
    """Only data on standard output: with nothing to do, with failed steps, and in a dry run."""
    done = both.run("--config", both.answers(), "--yes", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["workloads"]) == (
        0,
        ["pretrain_a", "pretrain_b"],
    )
    both.workload("pretrain_bad", Venv(name="bad", requirements=("nowhere==1",)))
    done = both.run("--config", both.answers(), "--yes", "--format", "json")
    assert done.returncode == 1
    assert "venv bad" in done.stderr
    data = json.loads(done.stdout)
    assert (data["workloads"], data["not_ready"]) == (
        ["pretrain_a", "pretrain_b"],
        {"pretrain_bad": ["venv bad"]},
    )
    assert [(fault["step"], bool(fault["hint"])) for fault in data["faults"]] == [
        ("venv bad", True)
    ]
    assert {step["step"]: step["there"] for step in data["steps"]}["venv small"] is True
    dry = both.run("--config", both.answers(), "--dry-run", "--format", "json")
    assert {step["step"]: step["state"] for step in json.loads(dry.stdout)["steps"]}[
        "venv bad"
    ] == "todo"


def test_faults_as_data(both: Any) -> None:
    """Only data on standard output, with the same exit code; a repair has no such form."""
    whole = both.run("verify", "--install", both.install, "--format", "json")
    assert (whole.returncode, json.loads(whole.stdout)["whole"]) == (0, True)
    module(both, "small").unlink()
    done = both.run("verify", "--install", both.install, "--format", "json")
    assert done.returncode == 1
    data = json.loads(done.stdout)
    assert (data["install"], data["whole"]) == (str(both.install), False)
    assert [fault["step"] for fault in data["faults"]] == ["venv small"]
    assert (
        both.run("verify", "--repair", "--install", both.install, "--format", "json").returncode
        == 2
    )


@pytest.mark.parametrize("text", [None, "gpu_type: [\n", "cluster_type: locl\n"])
def test_a_lost_configuration_is_written_anew(both: Any, text: str | None) -> None:
    path = both.install / "cluster_config.yaml"
    before = path.read_text()
    path.unlink() if text is None else path.write_text(text)
    fix = f"llmb-install verify --repair --install {both.install}"
    for words in (
        ("status",),
        ("remove", "pretrain_a"),
        ("verify",),
        *([()] if text is not None else []),
    ):
        done = both.run(*words, "--install", both.install) if words else both.run()
        assert done.returncode in (1, 2)
        assert fix in done.stderr, words
    done = both.run("verify", "--repair", "--yes", "--install", both.install)
    assert done.returncode == 0, done.stderr
    assert "cluster_config.yaml is written again" in done.stderr
    assert path.read_text() == before
    aside = both.install / "cluster_config.yaml.broken"
    assert (aside.read_text() if aside.exists() else None) == text


def test_an_installation_that_is_not_finished(both: Any, wording: Wording) -> None:
    """The hint is the repair, but to wait while another installer runs."""
    (both.install / "cluster_config.yaml").unlink()
    repair = f"llmb-install verify --repair --install {both.install}"
    for words in ("status", "verify"):
        done = both.run(words, "--install", both.install)
        assert repair in done.stderr
        with locks.hold(both.install / record.FOLDER, record.LOCK):
            done = both.run(words, "--install", both.install)
        assert done.returncode in (1, 2)
        assert repair not in done.stderr
        wording(
            f"llmb-install {words}",
            done.stderr,
            {f"{os.getpid()} on {socket.gethostname()}": "PID on HOST"},
        )


def test_an_interrupted_installation_is_continued_by_what_status_names(both: Any) -> None:
    """As when it is killed: the folder has the mark of an installation that began."""
    config = both.install / "cluster_config.yaml"
    config.unlink()
    (both.install / ".llmb" / "unfinished").touch()
    proceed = f"llmb-install --install {both.install} --yes"
    for words in ("status", "doctor"):
        done = both.run(words, "--install", both.install)
        assert proceed in " ".join((done.stdout + done.stderr).split()), words
        assert "--repair" not in done.stdout + done.stderr, words
    done = both.run(*proceed.split()[1:])
    assert done.returncode == 0, done.stderr
    assert config.is_file()


def test_recorded_answers_that_cannot_be_read(both: Any) -> None:
    """Nothing can be changed without them: it is a fault, and every command names the one that
    replaces them.
    """
    path = both.install / ".llmb" / "answers.yaml"
    path.write_text("workloads: [\n")
    fix = f"llmb-install --config answers.yaml --install {both.install}\n"
    assert both.faults() == [("answers", "yaml-invalid", "")]
    for words in (
        ("verify",),
        ("verify", "--repair", "--yes"),
        ("add", "pretrain_a"),
        ("remove", "pretrain_a"),
    ):
        done = both.run(*words, "--install", both.install)
        assert (done.returncode, fix in done.stderr) == (1 if words == ("verify",) else 2, True), (
            words
        )
    assert both.run().returncode == 0
    assert both.run("verify", "--install", both.install).returncode == 0


def test_a_record_that_cannot_be_read_is_a_finding(both: Any) -> None:
    (both.install / ".llmb" / "install.json").write_text("{")
    done = both.run("doctor", "--install", both.install, "--format", "json")
    assert (done.returncode, [one.split()[0] for one in json.loads(done.stdout)["lacking"]]) == (
        1,
        ["record"],
    )


def test_a_change_by_hand_is_reported(both: Any, wording: Wording) -> None:
    path = both.install / "cluster_config.yaml"
    path.write_text(path.read_text().replace("gpu_type: cpu", "gpu_type: h100"))
    done = both.run()
    assert done.returncode == 0
    wording("llmb-install", done.stdout.splitlines()[0])
    wording("llmb-install", done.stderr)


def test_what_is_known_and_not_installed(both: Any) -> None:
    done = both.run("remove", "nemotronh", "--yes", "--install", both.install)
    assert done.returncode == 2
    assert "pretrain_nemotronh" in done.stderr


@pytest.mark.parametrize("kind", ["a file", "a folder", "a link to another place"])
def test_what_the_user_put_there_is_kept(site: Any, kind: str, wording: Wording) -> None:
    site.workload("pretrain_a", SMALL)
    place = site.install / "venvs" / "small"
    place.parent.mkdir(parents=True)
    if kind == "a file":
        place.write_text("mine")
    elif kind == "a folder":
        place.mkdir()
    else:
        place.symlink_to(site.folder)
    before = place.lstat().st_ino
    done = site.run()
    assert done.returncode == 1
    wording("llmb-install", done.stderr)
    assert place.lstat().st_ino == before
    assert not (site.install / ".llmb" / "logs").exists(), "it is reported before anything starts"


def test_removed_with_what_nobody_else_uses(both: Any) -> None:
    runs = both.install / "workloads" / "pretrain_b" / "experiments" / "x"
    runs.mkdir(parents=True)
    shown = both.run("remove", "pretrain_b", "--dry-run", "--install", both.install)
    assert shown.returncode == 0
    assert (both.install / "venvs" / "other").exists()
    refused = both.run("remove", "pretrain_b", "--install", both.install)
    assert refused.returncode == 2
    done = both.run("remove", "b", "--yes", "--install", both.install)
    assert done.returncode == 0, done.stderr
    assert "venv other" in done.stdout
    assert [path.name for path in (both.install / "venvs").glob("[!.]*")] == ["small"]
    assert both.leftovers() == []
    assert runs.is_dir()
    config = yaml.safe_load((both.install / "cluster_config.yaml").read_text())
    assert config["workloads"]["installed"] == ["pretrain_a"]
    assert both.run("verify", "--install", both.install).returncode == 0

    added = both.run("add", "pretrain_b", "--yes", "--install", both.install)
    assert added.returncode == 0, added.stderr
    assert version(both, "other") == "1"
    config = yaml.safe_load((both.install / "cluster_config.yaml").read_text())
    assert set(config["workloads"]["installed"]) == {"pretrain_a", "pretrain_b"}
    before = added.stdout.splitlines()[-1]
    assert (
        both.run("add", "pretrain_b", "--yes", "--install", both.install).stdout.splitlines()[-1]
        == before
    )


def test_the_last_one_removed(site: Any) -> None:
    site.workload("pretrain_a", SMALL)
    assert site.run().returncode == 0
    done = site.run("remove", "pretrain_a", "--yes", "--install", site.install)
    assert done.returncode == 0, done.stderr
    status = json.loads(site.run("status", "--format", "json", "--install", site.install).stdout)
    assert status["workloads"] == []
    assert [*(site.install / "venvs").iterdir()] == []
    assert yaml.safe_load((site.install / ".llmb/answers.yaml").read_text())["workloads"] == []
    assert site.run("verify", "--install", site.install).returncode == 0
    again = site.run("add", "pretrain_a", "--yes", "--install", site.install)
    assert again.returncode == 0, again.stderr
    assert version(site, "small") == "1"


def test_a_failure_stops_only_what_depends_on_it(site: Any, wording: Wording) -> None:
    """One workload's package does not exist: its task is not run, and the other workload is
    ready.
    """
    note = site.folder / "ran"
    site.workload("pretrain_good", SMALL, Task(name="good", argv=("touch", str(note))))
    bad = Venv(name="bad", requirements=("nowhere==1",))
    site.workload(
        "pretrain_bad", bad, Task(name="after-bad", argv=("touch", str(note.with_name("never"))))
    )
    done = site.run()
    assert done.returncode == 1
    assert f"{site.install}/.llmb/logs/venv-bad.log" in done.stderr
    wording("llmb-install", done.stdout.splitlines()[-1])
    assert note.exists()
    assert not note.with_name("never").exists()
    config = yaml.safe_load((site.install / "cluster_config.yaml").read_text())
    assert config["workloads"]["installed"] == ["pretrain_good"]

    note.unlink()
    site.workload(
        "pretrain_bad", OTHER, Task(name="after-bad", argv=("touch", str(note.with_name("now"))))
    )
    done = site.run()
    assert done.returncode == 0, done.stderr
    assert note.with_name("now").exists()
    assert not note.exists(), "a task that is done is not run again"


def test_a_task_that_fails(site: Any, wording: Wording) -> None:
    site.workload(
        "pretrain_a", SMALL, Task(name="breaks", argv=("sh", "-c", "echo no good; exit 7"))
    )
    done = site.run()
    assert done.returncode == 1
    wording("llmb-install", done.stderr[done.stderr.index("error:") :])
    assert done.stdout.splitlines()[-1].startswith("Not ready: ")


def test_a_plan_as_data(site: Any, hub: SmallHub) -> None:
    hub.add("team/model", "tokenizer.json", b"x" * 1234)
    asset = HubAsset(repository="team/model", files=("tokenizer.json",))
    site.workload("pretrain_a", SMALL, asset, Task(name="last", argv=("true",)))
    done = site.run(
        "--config", site.answers(), "--dry-run", "--format", "json", HF_ENDPOINT=hub.url
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    steps = {step["step"]: step for step in plan["steps"]}
    assert steps["asset team/model@main"]["fetch_bytes"] == 1234
    assert steps["task last"]["after"] == ["venv small", "asset team/model@main"]
    assert {step["state"] for step in steps.values()} == {"todo"}
    assert plan["disks"][0]["needed_bytes"] == 1234
    assert plan["faults"] == []
    assert not site.install.exists()


def test_faults_are_reported_before_anything_starts(site: Any, hub: SmallHub) -> None:
    """Every fault at once."""
    site.workload("pretrain_a", SMALL, HubAsset(repository="team/none", files=("x",)))
    site.workload("pretrain_b", OTHER, Repo(url="https://host/repo", commit="main"))
    done = site.run(HF_ENDPOINT=hub.url)
    assert done.returncode == 1
    assert "error: asset team/none@main:" in done.stderr
    assert "error: repo repo-main:" in done.stderr
    assert not site.install.exists()


def test_uninstall_removes_what_was_built_and_keeps_the_runs(both: Any) -> None:
    runs = both.install / "workloads" / "pretrain_b" / "experiments" / "x"
    runs.mkdir(parents=True)
    words = ("--install", both.install)
    shown = both.run("uninstall", "--dry-run", *words)
    assert shown.returncode == 0, shown.stderr
    assert "  venv small" in shown.stdout
    assert "results of 0 runs," in shown.stdout
    assert f"rm -r {both.install}" in shown.stdout
    assert (both.install / "venvs" / "small").exists()
    assert both.run("uninstall", *words).returncode == 2, "without a terminal it needs --yes"
    done = both.run("uninstall", "--yes", *words)
    assert done.returncode == 0, done.stderr
    assert [*(both.install / "venvs").glob("[!.]*")] == []
    assert not [*(both.install / ".llmb" / "programs").glob("*")]
    assert runs.is_dir()
    config = yaml.safe_load((both.install / "cluster_config.yaml").read_text())
    assert config["workloads"]["installed"] == []
    again = both.run("uninstall", "--yes", *words)
    assert (again.returncode, again.stderr) == (0, "")


def test_uninstall_is_refused_while_a_run_has_not_ended(
    both: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "all_runs", lambda config: ([object()], []))
    monkeypatch.setattr(store, "seen_state", lambda run: None)
    with pytest.raises(LlmbError) as caught:
        uninstall.run(both.install, yes=True, dry_run=False)
    assert caught.value.code == "runs-open"
    assert (both.install / "venvs" / "small").exists()


def test_what_uninstall_prints_can_be_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "with space"
    uninstall._show(folder, record.InstallRecord(), 1, has_config=True)
    printed = capsys.readouterr().out
    assert f"rm -r '{folder}'" in printed
    assert " 1 run," in printed
