# SPDX-License-Identifier: Apache-2.0
"""Tests of an installation under a newer release: what is out of date is reported, and only that is
updated.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from llmb.contract.needs import Venv
from llmb_installer.images.image_step import ImageStep
from llmb_installer.planning.plan import Intent
from llmb_installer.planning.status import find_outdated, find_unused
from llmb_installer.record import FinishedStep, InstallRecord
from llmb_installer.step import InstallStep
from llmb_installer.venv.lock import TorchSource
from llmb_installer.venv.venv_step import VenvStep

KEPT = Venv(name="other", requirements=("other==1",))


def small(version: str) -> Venv:
    return Venv(name="small", requirements=(f"small=={version}",))


@pytest.fixture(scope="module")
def installed(install_once: Callable[..., Any]) -> Any:
    """The installation of an earlier release."""
    return install_once({"pretrain_a": (small("1"), KEPT)})


@pytest.fixture
def older(installed: Any) -> Any:
    """An installation of an earlier release, whose plugin has been updated since."""
    site = installed.site()
    site.workload("pretrain_a", small("2"), KEPT)
    return site


@pytest.fixture
def wording(wording: Callable[..., None], request: pytest.FixtureRequest) -> Callable[..., None]:
    """Hides the folder of ``older`` too."""
    folder = (
        {str(request.getfixturevalue("older").folder): "<tmp>"}
        if "older" in request.fixturenames
        else {}
    )
    return lambda command, text: wording(command, text, folder)


def version(site: Any) -> str:
    argv = [
        site.install / "venvs" / "small" / "bin" / "python",
        "-c",
        "import small; print(small.__version__)",
    ]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def test_what_is_out_of_date_is_reported(older: Any, wording: Callable[..., None]) -> None:
    status = older.run("status", "--install", older.install)
    assert status.returncode == 0
    data = json.loads(older.run("status", "--install", older.install, "--format", "json").stdout)
    assert [one["step"] for one in data["outdated"]] == ["venv small"]
    assert older.faults() == [("venv small", "venv-outdated", "")]
    wording("llmb-install verify", older.run("verify", "--install", older.install).stderr)
    wording("llmb-install status", status.stderr)


@pytest.mark.parametrize(
    "words",
    [("verify", "--repair"), ("add", "pretrain_a"), ()],
    ids=["repair", "add", "the installer itself"],
)
def test_only_that_is_updated(
    older: Any, words: tuple[str, ...], wording: Callable[..., None]
) -> None:
    """By each command, without the file of answers."""
    before = (older.install / "venvs" / "other").readlink()
    plan = json.loads(
        older.run("add", "a", "--dry-run", "--format", "json", "--install", older.install).stdout
    )
    wording("llmb-install", "\n".join(plan["notes"]))
    done = older.run(*words, "--yes", "--install", older.install)
    assert done.returncode == 0, done.stderr
    assert version(older) == "2"
    assert (older.install / "venvs" / "other").readlink() == before
    assert older.run("verify", "--deep", "--install", older.install).returncode == 0
    assert (
        json.loads(older.run("status", "--format", "json", "--install", older.install).stdout)[
            "outdated"
        ]
        == []
    )
    assert older.leftovers() == []


def test_an_update_that_fails_leaves_what_worked(older: Any) -> None:
    older.workload("pretrain_a", small("9"), KEPT)
    done = older.run("verify", "--repair", "--yes", "--install", older.install)
    assert done.returncode == 1
    assert "error: venv small:" in done.stderr
    assert version(older) == "1"


def test_an_unused_environment_is_named_and_only_removed_on_demand(
    older: Any, wording: Callable[..., None]
) -> None:
    older.workload("pretrain_a", small("1"))
    early = older.run("remove", "--unused", "--yes", "--install", older.install)
    assert early.returncode == 1, "the configuration still names it"
    assert older.faults() == [("config", "config-outdated", "")]
    wording("llmb-install verify", older.run("verify", "--install", older.install).stderr)
    assert older.run("verify", "--repair", "--yes", "--install", older.install).returncode == 0
    status = older.run("status", "--install", older.install)
    place = f"--install {older.install}"
    fix = f"venv other: llmb-install remove --unused {place}"
    assert fix in status.stderr
    verified = older.run("verify", "--install", older.install)
    assert (verified.returncode, fix in verified.stderr) == (0, True), verified.stderr
    shown = older.run("remove", "--unused", "--dry-run", "--install", older.install)
    assert (shown.returncode, (older.install / "venvs/other").exists()) == (0, True)
    assert older.run("remove", "--unused", "pretrain_a", "--install", older.install).returncode == 2
    assert older.run("remove", "--install", older.install).returncode == 2
    done = older.run("remove", "--unused", "--yes", "--install", older.install)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (older.install / "venvs").glob("[!.]*")] == ["small"]
    again = older.run("remove", "--unused", "--yes", "--install", older.install)
    assert again.returncode == 0
    assert older.run("verify", "--install", older.install).stderr == ""


def test_without_answers_of_its_own_the_installer_asks_for_them(site: Any) -> None:
    """A folder that holds no installation has none."""
    done = site.run("--yes", "--install", site.install)
    assert (done.returncode, "'cluster_type'" in done.stderr) == (2, True)


def intent(site: Any, *steps: InstallStep) -> Intent:
    return Intent(answers=site, asked=site, site=site, workloads=("w",), steps=steps)


def image(tag: str) -> ImageStep:
    return ImageStep(
        reference=f"host/team/tool:{tag}", architecture="x86_64", target=None, workloads=("w",)
    )


def test_an_image_replaces_another() -> None:
    found = InstallRecord(
        steps={image("1").key: FinishedStep(digest=image("1").digest, facts={}, workloads=("w",))}
    )
    wanted = intent(None, image("2"))
    (fault,) = find_outdated(wanted, found)
    assert (fault.place, fault.code) == ("image host/team/tool:2", "image-outdated")
    assert fault.value == ("host/team/tool:1",)
    assert find_unused(wanted, found) == ("image host/team/tool:1",)
    other = InstallRecord(
        steps={image("1").key: FinishedStep(digest="x", facts={}, workloads=("another",))}
    )
    assert find_outdated(wanted, other) == [], (
        "it is for another workload: the new one was never there"
    )


@pytest.mark.parametrize(
    ("packages", "code", "differing"),
    [
        (
            {"nemo-toolkit": "2.3.1", "torch": "2.6.0+cpu"},
            "venv-outdated",
            ("torch 2.6.0+cpu, expected 2.7.0",),
        ),
        ({"torch": "2.7.0"}, "venv-outdated", ("nemo_toolkit 2.3.1 is missing",)),
        ({"nemo-toolkit": "2.3.1", "torch": "2.7.0+cpu"}, "step-outdated", None),
    ],
)
def test_packages_by_their_pins(
    tmp_path: Any, packages: dict[str, str], code: str, differing: Any
) -> None:
    need = Venv(
        name="nemo", requirements=("nemo_toolkit[nlp]==2.3.1", "torch==2.7.0", "lightning>=2")
    )
    step = VenvStep(
        need=need,
        folder=tmp_path / "venvs" / "nemo",
        python=None,
        torch=TorchSource(),
        workloads=("w",),
    )
    found = InstallRecord(
        steps={step.key: FinishedStep(digest="older", facts={"packages": packages})}
    )
    (fault,) = find_outdated(intent(None, step), found)
    assert (fault.code, fault.value) == (code, differing)


def test_a_workload_without_its_plugin_is_kept_and_can_be_removed(site: Any) -> None:
    """The plugin may be in a colleague's environment."""
    site.workload("pretrain_a", small("1"))
    site.workload("pretrain_b", small("1"), KEPT)
    assert site.run().returncode == 0
    before = yaml.safe_load((site.install / "cluster_config.yaml").read_text())["workloads"]
    shutil.rmtree(site.folder / "plugins" / "pretrain_b-1.dist-info")
    place = ("--install", site.install)
    for words in (("status",), ("verify",)):
        done = site.run(*words, *place)
        assert (done.returncode, done.stderr.count("note: pretrain_b ")) == (0, 1), words
    again = site.run("--yes", *place)
    assert again.returncode == 0, again.stderr
    assert "pretrain_b: " in again.stderr
    site.workload("pretrain_c", Venv(name="third", requirements=("small==1",)))
    assert site.run("add", "pretrain_c", "--yes", *place).returncode == 0
    config = yaml.safe_load((site.install / "cluster_config.yaml").read_text())["workloads"]
    assert set(config["installed"]) == {"pretrain_a", "pretrain_b", "pretrain_c"}
    assert config["config"]["pretrain_b"] == before["config"]["pretrain_b"]
    assert site.run("remove", "pretrain_a", "--yes", *place).returncode == 0
    assert (site.install / "venvs" / "small" / "bin" / "python").exists(), "pretrain_b needs it"
    assert site.run("remove", "--unused", "--yes", *place).returncode == 0
    gone = site.run("remove", "pretrain_b", "--yes", *place)
    assert gone.returncode == 0, gone.stderr
    assert sorted(path.name for path in (site.install / "venvs").glob("[!.]*")) == ["third"]
    config = yaml.safe_load((site.install / "cluster_config.yaml").read_text())["workloads"]
    assert (config["installed"], [*config["config"]]) == (["pretrain_c"], ["pretrain_c"])
    assert site.run("verify", *place).stderr == ""
