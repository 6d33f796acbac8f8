# SPDX-License-Identifier: Apache-2.0
"""Tests of what happens before a submission: the script, preflight, the staged programs."""

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import llmb
from llmb.builtin.local import local_cluster, queue, ranks
from llmb.builtin.local.local_cluster import Hardware
from llmb.contract.launch import Launch, Program, StagedFile, Stamp, Wrapper
from llmb.contract.schema import ClusterConfig, WorkloadConfig, WorkloadsConfig
from llmb.core import shell
from llmb.core.process import host_name
from llmb.errors import LlmbError, PreflightError, describe
from llmb.kit import programs
from llmb_installer.cluster_types import all_types

Machine = Any  # the class is in conftest.py

LAUNCH = Launch(
    name="pretrain_x_tiny",
    nodes=1,
    ranks_per_node=2,
    time_limit=1200,
    program=Program(module="llmb_workloads.torch_pretrain"),
    args=("recipe.json",),
    venv="/i/venvs/torch",
    environment={"A": "1"},
    secrets=("HF_TOKEN",),
    wrappers=(Wrapper(name="a", argv=("a", "-x")), Wrapper(name="b", argv=("b",))),
    files=(StagedFile(name="recipe.json", text="{}"),),
)
STAMP = Stamp(id="abc", timestamp="17", directory="/i/runs/x_17")


def test_the_script_says_all_that_will_happen(machine: Machine) -> None:
    cluster = machine.cluster()
    text = cluster.render(LAUNCH, STAMP)
    assert text == cluster.render(LAUNCH, STAMP)
    staged = str(machine.install / ".llmb/programs" / programs.digest())
    assert json.loads(text) == {
        "schema_version": 1,
        "id": "abc",
        "name": "pretrain_x_tiny",
        "ranks": 2,
        "argv": [
            "a",
            "-x",
            "b",
            "/i/venvs/torch/bin/python",
            "-m",
            "llmb_workloads.torch_pretrain",
            "recipe.json",
        ],
        "environment": {
            "OMP_NUM_THREADS": "2",
            "PYTHONUNBUFFERED": "1",
            "A": "1",
            "PYTHONPATH": staged,
        },
        "secrets": ["HF_TOKEN"],
        "time_limit": 1200,
        "grace": 0.5,
        "directory": "/i/runs/x_17",
        "work": "/i/runs/x_17/pretrain_x_tiny",
        "log": "/i/runs/x_17/pretrain_x_tiny/log-pretrain_x_tiny.out",
        "batch_log": "/i/runs/x_17/pretrain_x_tiny/sbatch_pretrain_x_tiny.out",
        "programs": staged,
        "files": [{"name": "recipe.json", "text": "{}", "executable": False}],
        "world": None,
    }
    assert not machine.install.exists()
    assert not machine.state.exists()


def test_the_script_names_the_files_of_the_record(machine: Machine) -> None:
    run = machine.record(machine.launch(""))
    read = ranks.read_script(run.script)
    assert ranks.to_text(read) == run.script.read_text()
    assert [Path(path) for path in (read.work, read.log, read.batch_log)] == [
        run.work,
        run.log,
        run.batch_log,
    ]


def test_given_variables_win(machine: Machine) -> None:
    given = {"OMP_NUM_THREADS": "7", "PYTHONPATH": "/mine"}
    environment = json.loads(machine.cluster().render(replace(LAUNCH, environment=given), STAMP))[
        "environment"
    ]
    assert environment["OMP_NUM_THREADS"] == "7"
    assert environment["PYTHONPATH"].endswith(":/mine")


def test_more_ranks_than_cpus_share_them(machine: Machine) -> None:
    environment = json.loads(machine.cluster().render(replace(LAUNCH, ranks_per_node=9), STAMP))[
        "environment"
    ]
    assert environment["OMP_NUM_THREADS"] == "1"


def test_a_preview_without_a_python_environment(machine: Machine) -> None:
    launch = replace(LAUNCH, venv=None, wrappers=(), program=Program(script="train.py"), args=())
    assert json.loads(machine.cluster().render(launch, STAMP))["argv"] == [
        "<venv>/bin/python",
        "train.py",
    ]


def test_a_damaged_script_is_named(tmp_path: Path) -> None:
    with pytest.raises(LlmbError) as raised:
        ranks.read_script(tmp_path / "script")
    assert (raised.value.code, raised.value.value) == ("script-missing", str(tmp_path / "script"))
    (tmp_path / "script").write_text('{"id": 1}')
    with pytest.raises(LlmbError, match="'argv' is missing"):
        ranks.read_script(tmp_path / "script")


def test_preflight_finds_nothing_wrong(machine: Machine) -> None:
    assert machine.cluster().preflight([machine.launch("", ranks=64)]) == []


@pytest.mark.parametrize(
    ("launch", "found", "code", "value"),
    [
        ({"nodes": 2}, {}, "too-many-nodes", 2),
        ({"ranks": 2}, {"gpus": 1}, "too-few-gpus", 1),
        ({"venv": None}, {}, "venv-not-set", None),
        ({"venv": "/nowhere"}, {}, "venv-missing", "/nowhere"),
        ({"ranks": 1}, {"gpus": 0}, "too-few-gpus", 0),
    ],
)
def test_preflight_names_cause_and_fix(
    machine: Machine,
    launch: dict[str, Any],
    found: dict[str, Any],
    code: str,
    value: object,
    wording: Callable[..., None],
) -> None:
    cluster = machine.cluster(found=Hardware(**{"cpus": 2, "gpus": None, **found}))
    faults = cluster.preflight([machine.launch("", **launch)] * 2)
    assert [(fault.code, fault.value) for fault in faults] == [(code, value)]
    assert set(cluster.faults_here([machine.launch("", **launch)])) == set(faults)
    wording("submit-all", describe(PreflightError(faults)))


def test_a_python_that_may_not_be_used_is_not_called_missing(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.touch(mode=0o600)  # as for another user
    (fault,) = machine.cluster().preflight([machine.launch("", venv=str(tmp_path))])
    assert fault.message == f"you may not use {python}, the Python of {tmp_path}"
    assert (fault.hint or "").startswith("ask its owner for read permission")
    really = Path.stat

    def stat(path: Path, **options: Any) -> Any:
        if path == python:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return really(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    assert machine.cluster().preflight([machine.launch("", venv=str(tmp_path))]) == [fault]


def test_the_fix_names_the_workload(machine: Machine) -> None:
    own = WorkloadsConfig(config={"pretrain_x": WorkloadConfig(), "pretrain": WorkloadConfig()})
    config = replace(machine.cluster().config, workloads=own)
    (fault,) = machine.cluster(config=config).preflight([replace(LAUNCH, venv=None, secrets=())])
    where = ["--install", str(config.llmb_install), "--yes"]
    assert str(fault.hint).split() == ["llmb-install", "add", "pretrain_x", *where]
    (bare,) = machine.cluster().preflight(
        [replace(LAUNCH, name="own", workload="pretrain_y", venv=None, secrets=())]
    )
    assert str(bare.hint).split() == ["llmb-install", "add", "pretrain_y", *where]


def test_a_full_disk_is_reported_before(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(machine.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10**8))
    (fault,) = machine.cluster().preflight([machine.launch("")])
    assert fault.code == "disk-full"


def test_a_folder_that_is_not_writable_is_reported_before(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, wording: Callable[..., None]
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    faults = machine.cluster().preflight([machine.launch("")])
    assert [(fault.code, fault.value) for fault in faults] == [
        ("folder-not-writable", str(machine.root))
    ] * 2
    wording("submit-all", describe(PreflightError(faults)))


def test_gpus_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_cluster, "_GPUS", tmp_path / "gpus")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert local_cluster.count_gpus() == 0
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\necho 'GPU 0: NVIDIA H100'\necho '  MIG 1g.10gb'\necho 'GPU 1: NVIDIA H100'\n"
    )
    tool.chmod(0o755)
    assert local_cluster.count_gpus() == 2
    for number in range(3):
        (tmp_path / f"gpus/{number}").mkdir(parents=True)
    assert local_cluster.count_gpus() == 3


def test_gpus_are_looked_for_only_where_jobs_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_cluster, "count_gpus", lambda: 4)
    assert (
        local_cluster.find_hardware(
            ClusterConfig(cluster_type="local", gpu_type="cpu", kind=all_types()["local"])
        ).gpus
        is None
    )
    assert (
        local_cluster.find_hardware(
            ClusterConfig(cluster_type="local", gpu_type="h100", kind=all_types()["local"])
        ).gpus
        == 4
    )


def test_the_queue_is_for_one_user_on_one_machine(tmp_path: Path) -> None:
    assert queue.state_folder({"LLMB_STATE_DIR": str(tmp_path)}) == tmp_path
    assert queue.state_folder({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "llmb" / host_name()
    assert queue.state_folder({}) == Path.home() / ".local/state/llmb" / host_name()


def test_programs_are_staged_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        (staged,) = set(pool.map(lambda _: programs.stage(tmp_path), range(8)))
    assert staged == programs.path(tmp_path, programs.digest())
    done = shell.run(
        [sys.executable, "-S", "-c", "import llmb_workloads.world"], env={"PYTHONPATH": str(staged)}
    )
    assert done.err == ""
    assert [path.name for path in staged.parent.iterdir()] == [staged.name]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """A package of another name in place of the programs, to which files are added."""
    (tmp_path / "programs_of_a_test").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(programs, "PACKAGE", "programs_of_a_test")

    def add(name: str, text: str) -> None:
        (tmp_path / "programs_of_a_test" / name).write_text(text)

    return add


def test_the_digest_is_that_of_names_and_contents(package: Callable[[str, str], None]) -> None:
    seen = []
    for name, text in [
        ("__init__.py", "raise Exception"),
        ("a.py", "x"),
        ("a.py", "xy"),
        ("b.py", ""),
        ("data", "1"),
    ]:
        package(name, text)
        seen.append(programs.digest())
    assert seen[3] == seen[4]  # only programs count
    assert len(set(seen)) == 4
    assert "programs_of_a_test" not in sys.modules


def test_programs_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "PACKAGE", "llmb_nothing")
    with pytest.raises(LlmbError, match="llmb_nothing"):
        programs.digest()


def test_a_run_whose_programs_are_gone_is_refused(machine: Machine) -> None:
    run = machine.record(machine.launch(""), cluster=machine.cluster(digest="0" * 64))
    with pytest.raises(LlmbError) as raised:
        machine.cluster().submit(run)
    assert raised.value.code == "programs-missing"
    assert not queue.entries(machine.state)


def test_the_types_are_light_to_import() -> None:
    heavy = {
        "psutil",
        "yaml",
        "httpx",
        "llmb.builtin.local.local_cluster",
        "llmb.builtin.slurm.slurm_cluster",
    }
    code = (
        f"import sys, llmb.builtin.cluster_types as c; c.llmb_clusters(); print(*{heavy} &"
        " set(sys.modules))"
    )
    assert shell.run([sys.executable, "-c", code]).out.split() == []
    assert llmb.__file__ is not None
