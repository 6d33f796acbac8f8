# SPDX-License-Identifier: Apache-2.0
"""Tests of the doctor: its findings on machines and clusters of every kind, and when it ends with
1.
"""

import json
import os
import re
import shlex
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.slurm.partitions import read
from llmb.contract.cluster_type import ClusterType
from llmb.contract.finding import Finding
from llmb.contract.sbatch import SlurmConfig, SlurmOptions
from llmb.contract.spec import Workload
from llmb.plan.config_layers import load_config
from llmb_installer import record
from llmb_installer.cluster_types import all_types
from llmb_installer.detect.detected import Detected, InstallDirectory
from llmb_installer.detect.machine import MachineFound, find_folder
from llmb_installer.detect.scheduler import COMMANDS, SlurmFound
from llmb_installer.doctor import machine
from llmb_installer.doctor.examine import examine, examine_images
from llmb_installer.doctor.schedulers import examine_slurm, findings_of_type
from llmb_installer.record import answers_path
from llmb_runai import findings as runai
from llmb_testing.runai import ControlPlane, serve

GPUS = "batch*|up|infinite|1-infinite|4|idle|gpu:h100:8|n[1-4]|none\n"
BIG = SlurmFound(
    cluster="big",
    version="23.11.4",
    partitions=read(GPUS),
    commands=COMMANDS,
    accounting=True,
    accounts=("team",),
    pyxis=True,
    mpi=("pmix",),
)
Install = Callable[..., "subprocess.CompletedProcess[str]"]


def text_of(one: Finding) -> str:
    return f"{one.check} ({one.state}): {one.found}\n  fix: {one.fix}"


def by_check(found: Any) -> dict[str, Finding]:
    return {one.check: one for one in found}


def test_a_complete_slurm_cluster() -> None:
    own = SlurmConfig(
        account="team", mpi="pmix", gpu=SlurmOptions({"partition": "batch", "gres": 8})
    )
    assert {one.state for one in examine_slurm(BIG, own)} == {"ok"}


def test_a_configuration_that_requests_no_gpus_where_there_are_some(
    wording: Callable[..., None],
) -> None:
    own = SlurmConfig(account="team", gpu=SlurmOptions({"partition": "batch"}))
    found = by_check(examine_slurm(BIG, own))["GPUs (GRES)"]
    assert found.state == "warning"
    wording("llmb-install doctor", text_of(found))


def test_mpi_none_needs_no_type_of_srun() -> None:
    own = SlurmConfig(
        account="team", mpi="none", gpu=SlurmOptions({"partition": "batch", "gres": 8})
    )
    assert {one.state for one in examine_slurm(BIG, own)} == {"ok"}


def test_a_slurm_cluster_without_what_the_configuration_needs(wording: Callable[..., None]) -> None:
    bare = SlurmFound(
        cluster="b",
        commands=COMMANDS,
        partitions=read("work*|up|infinite|1-infinite|4|idle|(null)|n[1-4]|none\n"),
        accounting=True,
        accounts=("other",),
        mpi=("pmi2",),
    )
    own = SlurmConfig(account="team", gpu=SlurmOptions({"partition": "work,gone", "gres": 8}))
    found = by_check(examine_slurm(bare, own))
    missing = {check: one.fix for check, one in found.items() if one.state == "missing"}
    assert {*missing} == {"gpu partition", "GPUs (GRES)", "account", "pyxis"}
    assert found["srun --mpi"].state == "warning", "a submission starts the ranks without --mpi"
    assert all(found[check].needed_by == ("slurm",) for check in missing)
    wording("llmb-install doctor", "\n".join(text_of(one) for one in found.values()))


def test_mpi_is_examined_as_a_submission_asks_for_it(wording: Callable[..., None]) -> None:
    """srun lists a plugin whose library is missing, and cannot load it."""
    has_both = replace(BIG, mpi=("pmi2", "pmix"))
    kinds: list[str] = []

    def mpi_fault(kind: str) -> str | None:
        kinds.append(kind)
        return f"cannot load its MPI plugin '{kind}'" if kind == "pmix" else None

    options = SlurmOptions({"partition": "batch", "gres": 8})
    by_default = SlurmConfig(account="team", gpu=options)
    found = by_check(examine_slurm(has_both, by_default, mpi_fault))["srun --mpi"]
    assert found.state == "missing"
    wording("llmb-install doctor", text_of(found))
    named = replace(by_default, mpi="pmi2")
    assert by_check(examine_slurm(has_both, named, mpi_fault))["srun --mpi"].state == "ok"
    absent = replace(by_default, mpi="cray")
    assert by_check(examine_slurm(has_both, absent, mpi_fault))["srun --mpi"].state == "missing"
    assert kinds == ["pmix", "pmi2"]


def test_a_cluster_without_accounting_has_a_warning() -> None:
    found = by_check(
        examine_slurm(SlurmFound(cluster="b", commands=COMMANDS, partitions=read(GPUS)), None)
    )
    assert found["accounting"].state == "warning"
    assert found["pyxis"].state == "warning", "no configuration needs it"


def test_no_slurm_and_one_that_does_not_answer() -> None:
    assert [one.state for one in examine_slurm(None, None)] == ["missing"]
    silent = SlurmFound(commands=COMMANDS, fault="Slurm does not answer", fix="ask later")
    found = by_check(examine_slurm(silent, None))
    assert (found["Slurm answers"].state, found["Slurm answers"].fix) == ("missing", "ask later")


def test_runai_by_its_variables(home: Path) -> None:
    """The API is asked only when all are set."""
    found = by_check(runai.examine(None, {"BASE_URL": "https://h/api/v1"}))
    missing = [check for check, one in found.items() if one.state == "missing"]
    assert missing == ["project", "volume", "APP_SECRET"]
    assert found["Run:ai's API"].state == "warning"
    assert "project, APP_SECRET" in found["Run:ai's API"].found
    more = {
        "CUSTOM_MOUNT": "w:/w:c",
        "PVC_DIR": str(home / "gone"),
        "APP_ID": "me",
        "APP_SECRET": "s3cret",
    }
    found = by_check(runai.examine(None, {"BASE_URL": "https://h/api/v1", **more}))
    assert [check for check, one in found.items() if one.state == "missing"] == [
        "project",
        "volume mounted here",
    ]
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize(
    ("changes", "secret", "wrong", "value", "fix"),
    [
        ({}, "s3cret", [], "", ""),
        (
            {"BASE_URL": "http://127.0.0.1:1/api/v1"},
            "s3cret",
            ["Run:ai's API"],
            "127.0.0.1:1",
            "BASE_URL",
        ),
        (
            {"BASE_URL": "http://example.org"},
            "s3cret",
            ["Run:ai's API"],
            "http://example.org",
            "https://HOST/api/v1",
        ),
        ({}, "bad", ["APP_SECRET"], "'me'", "check APP_SECRET and APP_ID"),
        ({"PROJECT_NAME": "mine"}, "s3cret", ["project"], "'mine'", "check PROJECT_NAME"),
    ],
    ids=["accepted", "no server", "no TLS", "a wrong secret", "an unknown project"],
)
def test_the_answer_of_runai(
    tmp_path: Path,
    home: Path,
    changes: dict[str, str],
    secret: str,
    wrong: list[str],
    value: str,
    fix: str,
) -> None:
    """Where all variables are set, a finding says what the API refuses; what was not checked is not
    ok.
    """
    with serve(ControlPlane(tmp_path / "pods", has_pods=False)) as plane:
        key = {"APP_ID": "me", "APP_SECRET": secret}
        here = {
            "BASE_URL": plane.url,
            "PROJECT_NAME": "benchmarks",
            "CUSTOM_MOUNT": f"w:{tmp_path}:c",
            **key,
        }
        found = by_check(runai.examine(None, {**here, **changes}))
    assert [check for check, one in found.items() if one.state == "wrong"] == wrong
    for check in wrong:
        assert value in found[check].found
        assert fix in str(found[check].fix)
        assert "cluster_config.yaml" not in str(found[check].fix)
    tried = {check: one.state for check, one in found.items() if check not in wrong}
    assert tried["volume"] == tried["volume mounted here"] == "ok"
    assert {one for check, one in tried.items() if check == "project"} <= (
        {"warning"} if wrong else {"ok"}
    )
    assert secret not in repr(found)


def test_secrets_that_others_can_read(home: Path) -> None:
    path = home / ".config" / "llmb" / "secrets"
    path.parent.mkdir(parents=True)
    path.write_text("HF_TOKEN=hf_abc\n")
    path.chmod(0o644)
    found = by_check(machine.examine_folders(home, {}, is_installed=False))["secrets"]
    assert (found.state, found.fix) == ("wrong", f"chmod 600 {path}")
    path.chmod(0o600)
    found = by_check(machine.examine_folders(home, {}, is_installed=False))["secrets"]
    assert found.state == "ok"
    assert {str(path), "600", "HF_TOKEN"} <= {*re.findall(r"[^\s,:]+", found.found)}


def test_folders(tmp_path: Path, home: Path) -> None:
    found = by_check(
        machine.examine_folders(
            tmp_path / "new", {"TMPDIR": str(tmp_path / "file")}, is_installed=False
        )
    )
    assert found["install folder"].state == "ok"
    (tmp_path / "file").touch()
    found = by_check(
        machine.examine_folders(
            tmp_path / "file", {"TMPDIR": str(tmp_path / "file")}, is_installed=False
        )
    )
    assert found["install folder"].state == "missing"
    assert (found["temporary files"].state, found["temporary files"].needed_by) == (
        "missing",
        ("local", "slurm", "runai"),
    )


@pytest.mark.parametrize(("alone", "state"), [(True, "ok"), (False, "warning")])
def test_a_folder_that_other_machines_do_not_see(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, alone: bool, state: str
) -> None:
    """That is correct for a local installation."""
    monkeypatch.setattr(
        machine, "find_folder", lambda path: replace(find_folder(path), shared=False)
    )
    found = by_check(machine.examine_folders(tmp_path, {}, is_installed=True, is_local=alone))[
        "shared folder"
    ]
    assert (found.state, bool(found.fix)) == (state, not alone)


def test_small_sizes_are_shown_in_a_smaller_unit(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        machine,
        "find_folder",
        lambda path: replace(find_folder(path), free=3_400_000, mount=Path("/data")),
    )
    found = by_check(machine.examine_folders(tmp_path, {}, is_installed=True))
    assert found["disk"].found.startswith("3.4 MB ")
    assert "/data" in found["disk"].found, "the mount point shows a disk that is not mounted"
    assert "3.4 MB" in found["temporary files"].found


def test_tools_of_a_bare_machine(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    here = MachineFound(architecture="x86_64", pythons={}, venv_types=("venv",))
    environ = {
        "HOME": str(home),
        "PIP_CONFIG_FILE": str(tmp_path / "gone"),
        "PIP_INDEX_URL": "https://me:pass@host/",
    }
    found = by_check(machine.examine_tools(here, environ, containers=True))
    missing = {check: one.needed_by for check, one in found.items() if one.state == "missing"}
    assert missing == {"Python": ("local",), "mksquashfs": ("slurm",), "enroot": ("slurm",)}
    assert all(one.fix for one in found.values() if one.state != "ok")
    assert found["pip's configuration"].found == "PIP_CONFIG_FILE, PIP_INDEX_URL"
    assert "pass" not in repr(found), "the values may hold passwords"
    (tmp_path / "enroot").write_text("#!/bin/sh\necho 3.5.0\n")
    (tmp_path / "enroot").chmod(0o755)
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'no-devices-found'; exit 6\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    found = by_check(machine.examine_tools(here, environ, containers=True))
    assert found["enroot"].found == "3.5.0"
    assert found["mksquashfs"].state == "ok"
    assert found["mksquashfs"].found.startswith("not needed, the other tool builds images: ")
    assert (found["GPU driver"].state, found["GPU driver"].found) == ("warning", "no-devices-found")


def test_registries_are_asked_once_for_each_image(
    home: Path, workloads: dict[str, Workload]
) -> None:
    """Port 1 of this machine, where nothing listens."""
    moved = {
        key: replace(workload, image="127.0.0.1:1/nemo:1") for key, workload in workloads.items()
    }
    found = list(examine_images(moved, "x86_64", {}, home))
    assert [(one.state, one.needed_by) for one in found] == [("missing", ("slurm", "runai"))]
    assert "127.0.0.1:1" in found[0].found
    assert found[0].fix


def test_registries_are_asked_as_the_installation_asks(
    home: Path, cluster: Callable[..., Path]
) -> None:
    """With the mirrors in its answers: port 1 of this machine, where nothing listens."""
    folder = cluster("slurm", "h100")
    mirrors = "{nvcr.io: '127.0.0.1:1/ngc'}"
    text = (
        f"cluster_type: slurm\ninstall: {folder}\ngpu_type: h100\nimages: {{registry_mirrors:"
        f" {mirrors}}}\n"
    )
    answers_path(folder).parent.mkdir(exist_ok=True)
    answers_path(folder).write_text(text)
    here = MachineFound(architecture="x86_64", pythons={}, venv_types=())
    installed = InstallDirectory(
        path=folder, config=load_config(folder, {}, cluster_types=all_types)[0]
    )
    detected = Detected(home=home, cwd=folder, machine=here, installed=installed)
    found = by_check(examine(detected, {}, ask_registries=True).findings)
    assert (found["images"].state, "127.0.0.1:1" in found["images"].found) == ("missing", True)


def test_only_what_the_configured_type_needs_is_lacking(tmp_path: Path, home: Path) -> None:
    here = MachineFound(architecture="x86_64", pythons={"3.12": "p"}, venv_types=("uv", "venv"))
    detected = Detected(home=home, cwd=tmp_path, machine=here)
    every = examine(detected, os.environ)
    assert (every.cluster_type, every.lacking) == (None, ())
    assert {"Slurm's commands", "APP_SECRET"} <= {*by_check(every.findings)}
    asked = examine(detected, os.environ, cluster_type="slurm")
    assert [one.check for one in asked.lacking] == ["Slurm's commands"]
    assert "APP_SECRET" not in by_check(asked.findings)
    assert examine(detected, os.environ, cluster_type="local").lacking == ()


PVC = {"name": "w", "path": "/w", "claim": "c"}


@pytest.mark.parametrize(("kind", "code"), [("local", 0), ("runai", 1)])
def test_the_command(
    run_install: Install, cluster: Callable[..., Path], kind: str, code: int
) -> None:
    section = {"base_url": "https://127.0.0.1:1", "project": "p", "pvc": PVC}
    folder = cluster("local", "cpu") if kind == "local" else cluster("runai", "h100", runai=section)
    done = run_install("doctor", "--install", folder, "--format", "json")
    assert (done.returncode, done.stderr) == (code, "")
    data = json.loads(done.stdout)
    assert data["cluster_type"] == kind
    assert bool(data["lacking"]) == bool(code)
    table = run_install("doctor", "--install", folder)
    assert table.returncode == code
    last = table.stdout.splitlines()[-1]
    assert f"cluster type {kind}:" in last
    assert ("APP_SECRET (missing)" in last) == (code == 1)


def test_without_an_installation_it_examines_every_type_and_ends_with_0(
    run_install: Install,
) -> None:
    done = run_install("doctor")
    assert done.returncode == 0, done.stderr
    assert "Run:ai's API" in done.stdout
    assert run_install("doctor", "--cluster-type", "runai").returncode == 1


@pytest.mark.parametrize(
    "text", ["gpu_type: [\n", "cluster_type: local\ngpu_type: cpx\n", "\udcff"]
)
def test_a_configuration_that_cannot_be_read_is_one_finding(
    run_install: Install, tmp_path: Path, text: str
) -> None:
    """With the repair as its fix; the record of the installer still has the cluster type."""
    path = tmp_path / "cluster_config.yaml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    done = run_install("doctor", "--install", tmp_path, "--format", "json")
    assert (done.returncode, done.stderr) == (1, "")
    data = json.loads(done.stdout)
    found = {one["check"]: one for one in data["findings"]}
    assert found["cluster_config.yaml"]["state"] == "wrong"
    repair = ["llmb-install", "verify", "--repair", "--install", str(tmp_path), "--yes"]
    assert shlex.split(found["cluster_config.yaml"]["fix"])[-len(repair) :] == repair
    assert {"this machine", "disk", "Run:ai's API", "Slurm's commands"} <= {*found}
    assert (data["cluster_type"], data["lacking"]) == (None, ["cluster_config.yaml"])

    record.save(tmp_path, record.InstallRecord(config={"cluster_type": "local"}))
    done = run_install("doctor", "--install", tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "local: cluster_config.yaml (wrong)." in done.stdout
    assert "Run:ai" not in done.stdout
    path.unlink()
    done = run_install("doctor", "--install", tmp_path)
    assert done.returncode == 1
    assert "local: cluster_config.yaml (missing)." in done.stdout


def test_a_users_own_layer_that_cannot_be_read_is_one_finding(
    run_install: Install, cluster: Callable[..., Path], tmp_path: Path
) -> None:
    folder = cluster("local", "cpu")
    own = tmp_path / "config" / "llmb" / "config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("acount: team\n")
    done = run_install(
        "doctor", "--install", folder, "--format", "json", XDG_CONFIG_HOME=str(tmp_path / "config")
    )
    assert (done.returncode, done.stderr) == (1, "")
    data = json.loads(done.stdout)
    (wrong,) = [one for one in data["findings"] if one["check"] in data["lacking"]]
    assert wrong["state"] == "wrong"
    assert wrong["found"].startswith(f"{own}:1: acount:")
    assert "'account'" in wrong["fix"]


def test_it_examines_the_named_folder(run_install: Install, tmp_path: Path) -> None:
    """Also if nothing is installed there yet."""
    done = run_install("doctor", "--install", tmp_path / "new", "--format", "json")
    found = {one["check"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["install folder"]["state"] == "ok"
    assert str(tmp_path / "new") in found["install folder"]["found"]


def test_invalid_answers_do_not_end_it(run_install: Install, cluster: Callable[..., Path]) -> None:
    folder = cluster("slurm", "h100")
    answers_path(folder).parent.mkdir(exist_ok=True)
    answers_path(folder).write_text("cluster_type: slurm\ninstall: /x\nimages: {mirors: {}}\n")
    done = run_install("doctor", "--install", folder, "--registries", "--format", "json")
    found = {one["check"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["images"]["state"] == "wrong"
    assert "'mirors'" in found["images"]["found"]


def test_the_older_variable_is_one_finding(
    run_install: Install, cluster: Callable[..., Path]
) -> None:
    """With it, no other command looks for an installation."""
    folder = cluster("local", "cpu")
    answers_path(folder).parent.mkdir(exist_ok=True)
    answers_path(folder).touch()
    done = run_install("doctor", "--install", folder, "--format", "json", STAGE_PATH="/somewhere")
    assert (done.returncode, done.stderr) == (1, "")
    wrong = [one for one in json.loads(done.stdout)["findings"] if one["state"] == "wrong"]
    assert [(one["check"], "unset STAGE_PATH" in one["fix"]) for one in wrong] == [
        ("STAGE_PATH", True)
    ]
    assert run_install("status", "--install", folder, STAGE_PATH="/somewhere").returncode == 2


def test_missing_images(tmp_path: Path, run_install: Install) -> None:
    """Also without an installation; the last line names the cluster types that need them."""
    with socket.socket() as closed:  # bound and not listening: every connection is refused
        closed.bind(("127.0.0.1", 0))
        proxy = {
            name: f"http://127.0.0.1:{closed.getsockname()[1]}"
            for name in ("HTTPS_PROXY", "https_proxy")
        }
        nowhere = ["--install", tmp_path / "nowhere"]
        done = run_install("doctor", "--registries", *nowhere, **proxy)
        assert done.returncode == 1, done.stdout
        assert done.stdout.splitlines()[-1].endswith("runai: images (missing).")
        local = run_install(
            "doctor",
            "--registries",
            "--cluster-type",
            "local",
            "--format",
            "json",
            *nowhere,
            **proxy,
        )
    assert "images" not in json.loads(local.stdout)["lacking"]
    assert run_install("doctor", *nowhere).returncode == 0


def test_what_a_plugins_type_examines_is_shown() -> None:
    def examine(section: Any, environ: Any) -> list[Finding]:
        return [Finding(check="dust", state="missing", found=f"none for {section}")]

    kind = ClusterType(name="moon", create="moon:create", source="llmb-moon:moon", examine=examine)
    (found,) = findings_of_type(kind, None, {})
    assert (found.check, found.found, found.needed_by) == ("dust", "none for None", ("moon",))
    (failed,) = findings_of_type(
        replace(kind, examine=lambda section, environ: section.base), None, {}
    )
    assert (failed.state, "llmb-moon:moon" in failed.found) == ("wrong", True)
