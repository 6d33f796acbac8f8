# SPDX-License-Identifier: Apache-2.0
"""Tests of what is done to an install directory later: verify, repair, add, remove; and of a failure beside others."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb.system import locks
from llmb.workload.needs import HubAsset, Repo, Task, Venv
from llmb_installer.record import record
from llmb_testing.hub import SmallHub

SMALL, OTHER = Venv(name="small", requirements=("small==1",)), Venv(name="other", requirements=("other==1",))


def version(site: Any, package: str) -> str:
    """What the environment itself says of its package."""
    python = site.install / "venvs" / package / "bin" / "python"
    argv = [python, "-c", f"import {package}; print({package}.__version__)"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def module(site: Any, package: str) -> Path:
    (found,) = (site.install / "venvs" / package).glob(f"lib/python3*/site-packages/{package}.py")
    return Path(found)


@pytest.fixture
def both(site: Any) -> Any:
    """Two workloads that share one environment, and one of them has another one too."""
    site.workload("pretrain_a", SMALL)
    site.workload("pretrain_b", SMALL, OTHER)
    done = site.run()
    assert done.returncode == 0, done.stderr
    return site


def test_what_is_whole(both: Any) -> None:
    done = both.run("verify", "--install", both.install)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{both.install} is whole" in done.stdout


@pytest.mark.parametrize("deep", [True, False])
def test_a_changed_file(both: Any, deep: bool) -> None:
    """Only reading it finds it out; its repair builds that environment alone, of the very same packages."""
    path = module(both, "small")
    path.write_text("__version__ = 'mended by hand'\n")
    lock = (both.install / ".llmb/locks/small.txt").read_text()
    other = (both.install / "venvs/other").readlink()
    done = both.run("verify", "--install", both.install, *(["--deep"] if deep else []))
    assert done.returncode == (1 if deep else 0)
    if not deep:
        return
    assert "error: venv small: 1 file changed: " in done.stderr
    assert f"hint: llmb-install verify --deep --repair --install {both.install}" in done.stderr
    done = both.run("verify", "--deep", "--repair", "--yes", "--install", both.install)
    assert done.returncode == 0, done.stderr
    assert version(both, "small") == "1"
    assert (both.install / ".llmb/locks/small.txt").read_text() == lock
    assert (both.install / "venvs/other").readlink() == other


def test_a_missing_file(both: Any) -> None:
    module(both, "small").unlink()
    done = both.run("verify", "--install", both.install)
    assert done.returncode == 1
    assert "error: venv small: 1 file missing: lib/python3" in done.stderr


def test_a_missing_environment_is_built_again(both: Any) -> None:
    (both.install / "venvs" / "small").unlink()
    assert both.run("verify", "--install", both.install).returncode == 1
    status = both.run("status", "--format", "json", "--install", both.install)
    there = {row["step"]: row["there"] for row in json.loads(status.stdout)["steps"]}
    assert there == {"venv small": False, "venv other": True, "programs of compute nodes": True}
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
    done = both.run("verify", "--install", both.install)
    assert done.returncode == 1
    assert "'cpx' is not known" in done.stderr


def test_a_repair_that_fails_is_not_forgotten(both: Any) -> None:
    """Its index is gone: verify goes on to say that it is damaged, status too, until a repair comes to its end."""
    module(both, "other").write_text("broken by hand\n")
    failed = both.run("verify", "--deep", "--repair", "--yes", "--install", both.install, PIP_FIND_LINKS="/nowhere")
    assert failed.returncode == 1
    module(both, "other").write_text("__version__ = '1'\n")
    checked = both.run("verify", "--install", both.install)
    assert checked.returncode == 1
    assert "error: venv other: it was found damaged, and its repair did not come to an end" in checked.stderr
    assert "venv other: " in both.run("status", "--install", both.install).stdout
    mended = both.run("verify", "--repair", "--yes", "--install", both.install)
    assert mended.returncode == 0, mended.stderr
    assert both.run("verify", "--deep", "--install", both.install).returncode == 0


def test_what_was_never_finished_is_no_whole(both: Any) -> None:
    path = both.install / ".llmb" / "install.json"
    record = json.loads(path.read_text())
    del record["steps"]["venv other"]
    path.write_text(json.dumps(record))
    done = both.run("verify", "--install", both.install)
    assert done.returncode == 1
    assert "error: venv other: the answers ask for it, and it was never finished" in done.stderr


def test_a_workload_that_came_later_is_no_fault(both: Any) -> None:
    """Where the answers say all of them: it is named with its installation, and no repair installs it."""
    answers = both.answers(workloads=None)
    assert both.run("--config", answers, "--yes").returncode == 0
    both.workload("pretrain_late", Venv(name="late", requirements=("small==1",)))
    done = both.run("verify", "--install", both.install)
    assert (done.returncode, done.stderr) == (
        0,
        f"note: pretrain_late is offered here and not installed: "
        f"llmb-install add pretrain_late --install {both.install}\n",
    )
    assert f"{both.install} is whole" in done.stdout
    data = json.loads(both.run("verify", "--install", both.install, "--format", "json").stdout)
    assert (data["whole"], data["faults"], data["not_installed"]) == (True, [], ["pretrain_late"])

    (both.install / "venvs" / "small").unlink()
    done = both.run("verify", "--repair", "--yes", "--install", both.install)
    assert done.returncode == 0, done.stderr
    assert not (both.install / "venvs" / "late").exists()
    assert "workloads" not in yaml.safe_load((both.install / ".llmb/answers.yaml").read_text())
    assert both.run("add", "pretrain_late", "--yes", "--install", both.install).returncode == 0
    assert both.run("verify", "--install", both.install).stderr == ""


def test_what_failed_of_all_is_no_newcomer(both: Any) -> None:
    both.workload("pretrain_bad", Venv(name="bad", requirements=("nowhere==1",)))
    assert both.run("--config", both.answers(workloads=None), "--yes").returncode == 1
    done = both.run("verify", "--install", both.install)
    assert done.returncode == 1
    assert "error: venv bad: the answers ask for it, and it was never finished" in done.stderr
    assert "pretrain_bad" not in done.stderr


def test_an_installation_as_data(both: Any) -> None:
    """Nothing but data on stdout: when there is nothing to do, when steps fail, and in a dry run."""
    done = both.run("--config", both.answers(), "--yes", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["workloads"]) == (0, ["pretrain_a", "pretrain_b"])
    both.workload("pretrain_bad", Venv(name="bad", requirements=("nowhere==1",)))
    done = both.run("--config", both.answers(), "--yes", "--format", "json")
    assert done.returncode == 1
    assert "venv bad" in done.stderr
    data = json.loads(done.stdout)
    assert (data["workloads"], data["not_ready"]) == (["pretrain_a", "pretrain_b"], {"pretrain_bad": ["venv bad"]})
    assert [(fault["step"], bool(fault["hint"])) for fault in data["faults"]] == [("venv bad", True)]
    assert {step["step"]: step["there"] for step in data["steps"]}["venv small"] is True
    dry = both.run("--config", both.answers(), "--dry-run", "--format", "json")
    assert {step["step"]: step["state"] for step in json.loads(dry.stdout)["steps"]}["venv bad"] == "todo"


def test_faults_as_data(both: Any) -> None:
    """Nothing but data on stdout, the same exit code; a repair is not told in this form."""
    whole = both.run("verify", "--install", both.install, "--format", "json")
    assert (whole.returncode, json.loads(whole.stdout)["whole"]) == (0, True)
    module(both, "small").unlink()
    done = both.run("verify", "--install", both.install, "--format", "json")
    assert done.returncode == 1
    data = json.loads(done.stdout)
    assert (data["install"], data["whole"]) == (str(both.install), False)
    assert [fault["step"] for fault in data["faults"]] == ["venv small"]
    assert both.run("verify", "--repair", "--install", both.install, "--format", "json").returncode == 2


@pytest.mark.parametrize("text", [None, "gpu_type: [\n", "cluster_type: locl\n"])
def test_a_lost_configuration_is_written_anew(both: Any, text: str | None) -> None:
    path = both.install / "cluster_config.yaml"
    before = path.read_text()
    path.unlink() if text is None else path.write_text(text)
    fix = f"llmb-install verify --repair --install {both.install}"
    for words in (("status",), ("remove", "pretrain_a"), ("verify",), *([()] if text is not None else [])):
        done = both.run(*words, "--install", both.install) if words else both.run()
        assert done.returncode in (1, 2)
        assert fix in done.stderr, words
    done = both.run("verify", "--repair", "--yes", "--install", both.install)
    assert done.returncode == 0, done.stderr
    assert path.read_text() == before
    aside = both.install / "cluster_config.yaml.broken"
    assert (aside.read_text() if aside.exists() else None) == text


def test_an_installation_that_is_not_finished(both: Any) -> None:
    """The repair is no advice while an installer is at work; and nothing is set aside that is not there."""
    (both.install / "cluster_config.yaml").unlink()
    repair = f"llmb-install verify --repair --install {both.install}"
    for words in ("status", "verify"):
        done = both.run(words, "--install", both.install)
        assert repair in done.stderr
        assert "sets it aside" not in done.stderr
        with locks.hold(both.install / record.FOLDER, record.LOCK):
            done = both.run(words, "--install", both.install)
        assert done.returncode in (1, 2)
        assert f"llmb-install is at work there, process {os.getpid()} on " in done.stderr
        assert "wait until it has finished" in done.stderr
        assert repair not in done.stderr


def test_noted_answers_that_cannot_be_read(both: Any) -> None:
    """Nothing can be changed without them: it is a fault, and every command names the way to write them anew."""
    path = both.install / ".llmb" / "answers.yaml"
    path.write_text("workloads: [\n")
    fix = f"hint: llmb-install --config answers.yaml --install {both.install} writes it anew"
    done = both.run("verify", "--install", both.install)
    assert done.returncode == 1
    assert f"error: answers: {path}:2: not valid YAML" in done.stderr
    for words in (("verify",), ("verify", "--repair", "--yes"), ("add", "pretrain_a"), ("remove", "pretrain_a")):
        done = both.run(*words, "--install", both.install)
        assert (done.returncode, fix in done.stderr) == (1 if words == ("verify",) else 2, True), words
    assert both.run().returncode == 0
    assert both.run("verify", "--install", both.install).returncode == 0


def test_a_record_that_cannot_be_read_is_a_finding(both: Any) -> None:
    (both.install / ".llmb" / "install.json").write_text("{")
    done = both.run("doctor", "--install", both.install, "--format", "json")
    assert (done.returncode, json.loads(done.stdout)["lacking"]) == (1, ["record of the installation"])


def test_a_change_by_hand_is_said(both: Any) -> None:
    path = both.install / "cluster_config.yaml"
    path.write_text(path.read_text().replace("gpu_type: cpu", "gpu_type: h100"))
    done = both.run()
    assert done.returncode == 0
    assert "Nothing to do: all is as the answers say, but for changes by hand." in done.stdout
    assert "cluster_config.yaml keeps gpu_type 'h100'; the answers give gpu_type 'cpu'" in done.stderr


def test_what_is_known_and_not_installed(both: Any) -> None:
    done = both.run("remove", "nemotronh", "--yes", "--install", both.install)
    assert done.returncode == 2
    assert f"pretrain_nemotronh is not installed in {both.install}" in done.stderr
    assert "hint: installed: pretrain_a, pretrain_b" in done.stderr


@pytest.mark.parametrize("kind", ["a file", "a folder", "a link to another place"])
def test_what_the_user_has_put_there_stays(site: Any, kind: str) -> None:
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
    assert f"error: venv small: {place} is {kind} that llmb-install has not made\nhint: move it away" in done.stderr
    assert place.lstat().st_ino == before
    assert not (site.install / ".llmb" / "logs").exists(), "it is told before anything starts"


def test_removed_with_what_nobody_else_uses(both: Any) -> None:
    runs = both.install / "workloads" / "pretrain_b" / "experiments" / "x"
    runs.mkdir(parents=True)
    shown = both.run("remove", "pretrain_b", "--dry-run", "--install", both.install)
    assert shown.returncode == 0
    assert (both.install / "venvs" / "other").exists()
    refused = both.run("remove", "pretrain_b", "--install", both.install)
    assert refused.returncode == 2
    assert "give --yes" in refused.stderr
    done = both.run("remove", "b", "--yes", "--install", both.install)
    assert done.returncode == 0, done.stderr
    assert "venv other: will be removed, no other workload uses it" in done.stdout
    assert "Taken out: pretrain_b, venv other\n" in done.stdout
    assert "Taken out" not in shown.stdout + refused.stdout
    assert "venv small: stays, for pretrain_a" in done.stdout
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
    assert both.run("add", "pretrain_b", "--yes", "--install", both.install).stdout.startswith("Nothing to do: ")


def test_the_last_one_removed(site: Any) -> None:
    site.workload("pretrain_a", SMALL)
    assert site.run().returncode == 0
    done = site.run("remove", "pretrain_a", "--yes", "--install", site.install)
    assert done.returncode == 0, done.stderr
    assert "Installed now: nothing" in done.stdout
    assert "workloads: none\n" in site.run("status", "--install", site.install).stdout
    assert [*(site.install / "venvs").iterdir()] == []
    assert yaml.safe_load((site.install / ".llmb/answers.yaml").read_text())["workloads"] == []
    assert site.run("verify", "--install", site.install).returncode == 0
    again = site.run("add", "pretrain_a", "--yes", "--install", site.install)
    assert again.returncode == 0, again.stderr
    assert version(site, "small") == "1"


def test_a_failure_stops_only_what_depends_on_it(site: Any) -> None:
    """One workload's package is nowhere: its task is not run, the other workload is ready, and the end says so."""
    note = site.folder / "ran"
    site.workload("pretrain_good", SMALL, Task(name="good", argv=("touch", str(note))))
    bad = Venv(name="bad", requirements=("nowhere==1",))
    site.workload("pretrain_bad", bad, Task(name="after-bad", argv=("touch", str(note.with_name("never")))))
    done = site.run()
    assert done.returncode == 1
    assert "error: venv bad: uv's choice of packages failed with exit code 1:" in done.stderr
    assert f"all of its output: {site.install}/.llmb/logs/venv-bad.log" in done.stderr
    assert "1 workload: pretrain_good" in done.stdout
    assert "Not ready: pretrain_bad, which needs venv bad, task after-bad" in done.stdout
    assert note.exists()
    assert not note.with_name("never").exists()
    config = yaml.safe_load((site.install / "cluster_config.yaml").read_text())
    assert config["workloads"]["installed"] == ["pretrain_good"]

    note.unlink()
    site.workload("pretrain_bad", OTHER, Task(name="after-bad", argv=("touch", str(note.with_name("now")))))
    done = site.run()
    assert done.returncode == 0, done.stderr
    assert note.with_name("now").exists()
    assert not note.exists(), "a task that is done is not run again"


def test_a_task_that_fails(site: Any) -> None:
    site.workload("pretrain_a", SMALL, Task(name="breaks", argv=("sh", "-c", "echo no good; exit 7")))
    done = site.run()
    assert done.returncode == 1
    assert "error: task breaks: breaks failed with exit code 7:\n  no good\n" in done.stderr
    assert "Installed" not in done.stdout


def test_a_plan_as_data(site: Any, hub: SmallHub) -> None:
    hub.add("team/model", "tokenizer.json", b"x" * 1234)
    asset = HubAsset(repository="team/model", files=("tokenizer.json",))
    site.workload("pretrain_a", SMALL, asset, Task(name="last", argv=("true",)))
    done = site.run("--config", site.answers(), "--dry-run", "--format", "json", HF_ENDPOINT=hub.url)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    steps = {step["step"]: step for step in plan["steps"]}
    assert steps["asset team/model@main"]["fetch_bytes"] == 1234
    assert steps["task last"]["after"] == ["venv small", "asset team/model@main"]
    assert {step["state"] for step in steps.values()} == {"todo"}
    assert plan["disks"][0]["needed_bytes"] == 1234
    assert plan["faults"] == []
    assert not site.install.exists()


def test_what_stands_in_the_way_is_told_before_anything_starts(site: Any, hub: SmallHub) -> None:
    """Every fault at once, in a dry run too."""
    site.workload("pretrain_a", SMALL, HubAsset(repository="team/none", files=("x",)))
    site.workload("pretrain_b", OTHER, Repo(url="https://host/repo", commit="main"))
    done = site.run(HF_ENDPOINT=hub.url)
    assert done.returncode == 1
    assert "error: asset team/none@main: " in done.stderr
    assert "error: repo repo-main: 'main' is not a whole commit" in done.stderr
    assert not site.install.exists()
