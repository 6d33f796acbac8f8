# SPDX-License-Identifier: Apache-2.0
"""examples/cluster-ssh as a stranger's distribution: from wheels, installed headless, submitted,
polled, cancelled.
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import psutil
import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder

# torch may be installed first
pytestmark = [pytest.mark.slow, pytest.mark.local_install, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "cluster-ssh"
# In place of ssh: the words are a machine and a command, which runs here. A real sshd would need a
# user with keys.
CONNECT = """\
#!/bin/bash
[[ -e ${0%/*}/down ]] && { echo "ssh: no route to host" >&2; exit 255; }
exec bash -c "$2"
"""
TINY = ("single", "-w", "llama3.1", "-s", "tiny", "--dtype", "fp32", "--scale")
Llmb = Callable[..., "subprocess.CompletedProcess[str]"]


def test_it_imports_nothing_of_llmb_but_its_api() -> None:
    found = set()
    for path in EXAMPLE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "llmb":
                found |= {f"{node.module}.{one.name}" for one in node.names}
            if isinstance(node, ast.Import):
                found |= {one.name for one in node.names if one.name.partition(".")[0] == "llmb"}
    assert found == {"llmb.api"}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a new environment with two examples from their wheels, beside llmb of this
    checkout.
    """
    folder = tmp_path_factory.mktemp("ssh")
    for example in (EXAMPLE, EXAMPLE.with_name("inference")):
        next(
            WheelBuilder(str(example)).build(
                directory=str(folder / "wheels"), versions=["standard"]
            )
        )
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(venv),
        "install",
        "--quiet",
        "--no-compile",
        "--no-deps",
    ]
    wheels = map(str, (folder / "wheels").glob("*.whl"))
    done = subprocess.run([*pip, *wheels], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (site,) = (venv / "lib").glob("python*/site-packages")
    (own,) = (
        path
        for path in map(Path, sys.path)
        if path.name == "site-packages" and sys.prefix in str(path)
    )
    (site / "checkout.pth").write_text(f"import site; site.addsitedir({str(own)!r})\n")
    for name in ("llmb-run", "llmb-install"):
        text = (Path(sys.executable).parent / name).read_text("utf-8")
        (venv / "bin" / name).write_text(
            "\n".join([f"#!{venv}/bin/python", *text.splitlines()[1:]]) + "\n"
        )
        (venv / "bin" / name).chmod(0o755)
    return venv / "bin"


@pytest.fixture
def llmb(commands: Path, tmp_path: Path) -> Llmb:
    """Runs llmb-run, or another command, for the install directory ``tmp_path/install``."""
    (tmp_path / "tmp").mkdir()

    def run(
        *words: object, command: str = "llmb-run", **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        argv = [str(commands / command), *map(str, words), "--install", str(tmp_path / "install")]
        own = {
            "LLMB_STATE_DIR": str(tmp_path / "state"),
            "TMPDIR": str(tmp_path / "tmp"),
            "OMP_NUM_THREADS": "1",
        }
        environment = {**os.environ, **own, **variables}
        return subprocess.run(
            argv, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return run


def answers_in(tmp_path: Path, **ssh: Any) -> Path:
    connect = tmp_path / "connect"
    connect.write_text(CONNECT)
    connect.chmod(0o755)
    path = tmp_path / "answers.yaml"
    section = {"hosts": ["one", "two"], "command": [str(connect)], **ssh}
    keys = {
        "cluster_type": "ssh",
        "gpu_type": "cpu",
        "ssh": section,
        "workloads": ["llama3.1"],
        "venv_type": "venv",
    }
    path.write_text(yaml.safe_dump(keys))
    return path


@pytest.fixture
def installed(tmp_path: Path, torch_install: Path) -> Iterator[Path]:
    """An install directory of cluster type ssh, with the environment that the tests share."""
    install = tmp_path / "install"
    install.mkdir()
    keys = yaml.safe_load(answers_in(tmp_path).read_text())
    venv = {
        "venv_path": str(torch_install / "venvs" / "torch"),
        "environment": {"OMP_NUM_THREADS": "1"},
    }
    config = {name: keys[name] for name in ("cluster_type", "gpu_type", "ssh")}
    config["gpu_types"] = {"cpu": {"gpus_per_node": 2}}
    config["workloads"] = {
        "installed": ["pretrain_llama3.1"],
        "config": {"pretrain_llama3.1": venv},
    }
    (install / "cluster_config.yaml").write_text(yaml.safe_dump(config))
    yield install
    for one in psutil.process_iter(["cmdline"]):  # jobs of a test that failed
        words = one.info["cmdline"] or []
        if "llmb-job" in words and any(str(tmp_path) in word for word in words):
            one.terminate()


def test_headless_install_plans_for_it_and_reports_faults_at_their_lines(
    llmb: Llmb, tmp_path: Path
) -> None:
    install = ("--yes", "--dry-run", "--format", "json")
    path = answers_in(tmp_path)
    done = llmb("--config", path, *install, command="llmb-install")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["cluster_type"] == "ssh"
    assert "venv torch" in str(plan["steps"])
    bad = answers_in(tmp_path, hosts=["-evil"], timeuot=5)
    done = llmb("--config", bad, *install, command="llmb-install")
    assert done.returncode == 2
    lines = bad.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "timeuot" in text)
    assert f"{bad}:{line}: ssh.timeuot" in done.stderr
    assert "did you mean 'timeout'?" in done.stderr
    path.write_text("cluster_type: ssh\ngpu_type: cpu\n")
    done = llmb("--config", path, *install, command="llmb-install")
    assert done.returncode == 2
    assert "'ssh.hosts' is missing" in done.stderr
    named = {"LLMB_SSH_HOSTS": "one, two"}
    done = llmb("--config", path, *install, command="llmb-install", **named)
    assert done.returncode == 0, done.stderr
    assert "ssh.hosts from LLMB_SSH_HOSTS" in done.stderr


def test_a_strangers_workload_is_installed_and_runs_on_a_strangers_cluster(
    llmb: Llmb, tmp_path: Path
) -> None:
    """Headless, to the end: nothing is built, because the workload needs only Python."""
    path = answers_in(tmp_path)
    path.write_text(path.read_text().replace("llama3.1", "inference"))
    done = llmb("--config", path, "--yes", command="llmb-install")
    assert done.returncode == 0, done.stderr
    config = yaml.safe_load((tmp_path / "install" / "cluster_config.yaml").read_text())
    assert config["ssh"]["hosts"] == ["one", "two"]
    assert config["cluster_type"] == config["cluster_name"] == "ssh"
    done = llmb("single", "-w", "inference", "--scale", 1, "--wait", "--format", "json")
    assert done.returncode in (0, 3), done.stderr  # by the verdict, which depends on the machine
    (result,) = json.loads(done.stdout)["results"]
    assert result["status"] == "Success", result
    shown = yaml.safe_load(llmb("config").stdout)
    assert shown["ssh"]["hosts"] == ["one", "two"]
    assert llmb("verify", command="llmb-install").returncode == 0
    done = llmb("doctor", "--format", "json", command="llmb-install")
    checks = {one["check"]: one["state"] for one in json.loads(done.stdout)["findings"]}
    assert checks["cluster type ssh"] == "ok"


def test_the_wizard_asks_its_questions(commands: Path, tmp_path: Path) -> None:
    (tmp_path / "connect").write_text(CONNECT)
    (tmp_path / "connect").chmod(0o755)
    settings = [
        "--set",
        "workloads=[inference]",
        "--set",
        f"ssh.command=[{tmp_path}/connect]",
        "--set",
        "gpu_type=cpu",
    ]
    environment = {
        **os.environ,
        "LLMB_STATE_DIR": str(tmp_path / "state"),
        "LLMB_SSH_HOSTS": "one, two",
    }
    child: Any = pexpect.spawn(
        str(commands / "llmb-install"),
        [*settings, "--install", str(tmp_path / "install")],
        env=environment,
        cwd=str(tmp_path),
        encoding="utf-8",
        timeout=120,
        dimensions=(50, 120),
    )
    child.expect_exact("start jobs on other machines by ssh")
    child.expect_exact("(one, two)")  # what the type has detected; so it is the default
    child.send("\r")
    child.expect_exact("Machines for jobs, separated by commas:")
    child.send("\x15-x\r")
    child.expect_exact("'-x' is not the name of a machine")
    child.send("\x15three\r")
    question = [
        "Which processors do the compute nodes have?",
        "creates the Python environments?",
        "Choose one to change",
    ]
    while child.expect_exact([*question, "Continue?"]) < len(question):
        child.send("\r")
    child.send("\r")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0, child.before
    config = yaml.safe_load((tmp_path / "install" / "cluster_config.yaml").read_text())
    assert config["ssh"]["hosts"] == ["three"]
    assert config["workloads"]["installed"] == ["inference"]


def test_a_tiny_model_trains_and_is_measured(llmb: Llmb, installed: Path) -> None:
    done = llmb(*TINY, 2, "--wait", "--format", "json")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert (result["status"], result["steps"]) == ("Success", 50), result
    assert result["time_mean_seconds"] > 0
    (row,) = json.loads(llmb("jobs", "list", "--session", "all", "--format", "json").stdout)
    assert row["state"] == "COMPLETED"
    logs = llmb("jobs", "logs", row["id"])
    assert "train_step_timing" in logs.stdout


def test_a_waiting_and_a_running_job_are_cancelled(llmb: Llmb, installed: Path) -> None:
    for _ in range(2):
        done = llmb(*TINY, 1, "--set", "max_steps=100000")
        assert done.returncode == 0, done.stderr
    ids = [
        row["id"]
        for row in json.loads(llmb("jobs", "list", "--session", "all", "--format", "json").stdout)
    ]
    assert llmb("jobs", "cancel", *ids).returncode == 0
    done = llmb("jobs", "wait", *ids)
    assert done.returncode == 3, done.stderr
    states = {
        row["state"]
        for row in json.loads(llmb("jobs", "list", "--session", "all", "--format", "json").stdout)
    }
    assert states == {"CANCELLED"}


def test_a_machine_that_does_not_answer_leaves_the_run_to_reconcile(
    llmb: Llmb, installed: Path
) -> None:
    down = installed.parent / "down"
    down.touch()
    done = llmb(*TINY, 1, "--set", "max_steps=5")
    assert done.returncode == 1
    assert "no route to host" in done.stderr
    (row,) = json.loads(llmb("jobs", "list", "--session", "all", "--format", "json").stdout)
    assert row["state"] in ("NOT_SUBMITTED", "UNKNOWN")
    down.unlink()
    done = llmb("jobs", "reconcile")
    assert done.returncode == 0, done.stderr
    done = llmb("jobs", "wait", row["id"])
    assert done.returncode == 0, done.stderr


def test_nemos_sizes_run_there_too(llmb: Llmb, installed: Path) -> None:
    """A launch of NeMo from the environment; the dry run shows the script."""
    config = yaml.safe_load((installed / "cluster_config.yaml").read_text())
    (installed / "cluster_config.yaml").write_text(yaml.safe_dump({**config, "gpu_type": "h100"}))
    size = ("-w", "llama3.1", "-s", "8b", "--dtype", "bf16", "--scale", 8)
    done = llmb("single", *size, "--dry-run", "--format", "json")
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    assert "llmb_workloads.nemo_pretrain" in job["script"]
    assert job["image"] is None
