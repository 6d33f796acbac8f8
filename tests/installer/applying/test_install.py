# SPDX-License-Identifier: Apache-2.0
"""Tests of whole installations by the real command and pip, with small wheels: again, on, changed,
broken off.
"""

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pytest

from llmb.core import shell
from llmb.plan.config_layers import load_config
from llmb.plan.locate import CONFIG_FILE
from llmb_installer.cluster_types import all_types

# pip takes its time where the machine has other work
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Answers = Callable[..., Path]
Install = Callable[..., "subprocess.CompletedProcess[str]"]


def record(install: Path) -> Any:
    return json.loads((install / ".llmb" / "install.json").read_text())


def versions(install: Path) -> str:
    """What the environment itself says of its packages."""
    code = "import torch, transformers; print(torch.__version__, transformers.__version__)"
    python = install / "venvs" / "torch" / "bin" / "python"
    return subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def builds(install: Path) -> list[str]:
    return sorted(path.name for path in (install / "venvs").iterdir() if path.name != "torch")


def tree(install: Path) -> dict[str, tuple[int, int]]:
    found = {str(path): path.lstat() for path in install.rglob("*")}
    return {name: (info.st_ino, info.st_mtime_ns) for name, info in found.items()}


@pytest.fixture(scope="module")
def installed(
    command: str,
    environ: dict[str, str],
    run_install: Install,
    new_gate: Callable[[], Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Path, str]:
    """An answers file, the directory installed by it, and what the command printed. It continued a
    killed one.
    """
    folder = tmp_path_factory.mktemp("installed")
    answers, install = folder / "answers.yaml", folder / "my install"
    lines = (
        "cluster_type: local",
        f"install: {install}",
        "gpu_type: cpu",
        "venv_type: venv",
        "environment: {A: b}",
    )
    answers.write_text("\n".join(lines))
    with new_gate() as gate:
        held = {**environ, "PIP_FIND_LINKS": gate.url}
        with subprocess.Popen(
            [command, "--config", answers, "--yes"], env=held, stdout=subprocess.DEVNULL
        ) as first:
            assert gate.asked.wait(120)
            first.kill()
        assert len(builds(install)) == 1
        assert not (install / "venvs" / "torch").exists()
        assert not (install / CONFIG_FILE).exists()
        # the pip of the first one still waits for its wheel
        done = run_install("--config", answers, "--yes")
    assert done.returncode == 0, done.stderr
    return answers, install, done.stdout + done.stderr


def test_the_first_time(installed: tuple[Path, Path, str]) -> None:
    _, install, output = installed
    config, _ = load_config(install, {"XDG_CONFIG_HOME": str(install)}, cluster_types=all_types)
    trained = {"microbench", "pretrain_llama3.1", "pretrain_nemotron4", "pretrain_nemotronh"}
    keys = list(config.workloads.installed or ())
    assert (trained <= {*keys}, keys) == (True, sorted(keys))
    venvs = {config.workloads.config[key].venv_path for key in trained}
    assert venvs == {install / "venvs" / "torch"}
    assert (config.cluster_type, config.gpu_type, config.environment) == (
        "local",
        "cpu",
        {"A": "b"},
    )
    assert versions(install) == "2.13.0 5.23.0"
    assert [
        line for line in output.splitlines() if line.startswith("venv torch:") and ": done" in line
    ]
    following = shlex.split(output[output.index("Next: ") :].splitlines()[0])
    assert following[1:] == [
        "llmb-run",
        "submit",
        "--min-scale",
        "--install",
        str(install),
        "--wait",
    ]


def test_its_record(installed: tuple[Path, Path, str]) -> None:
    facts = record(installed[1])["steps"]["venv torch"]["facts"]
    assert facts["packages"]["torch"] == "2.13.0"
    assert {"torch==2.13.0", "transformers==5.23.0"} <= set(facts["freeze"])
    assert facts["python"].startswith("3.")


def test_the_second_time_starts_and_writes_nothing(
    installed: tuple[Path, Path, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from llmb_installer import cli

    def never(*arguments: object, **keywords: object) -> None:
        raise AssertionError(arguments)

    for name in ("run", "run_logged", "spawn"):
        monkeypatch.setattr(shell, name, never)
    answers, install, _ = installed
    before = tree(install)
    cli.cli.main(["--config", str(answers), "--yes"], standalone_mode=False)
    assert capsys.readouterr().out.startswith("Nothing to do:")
    assert tree(install) == before


def test_status(installed: tuple[Path, Path, str], run_install: Install) -> None:
    _, install, _ = installed
    done = run_install("status", "--install", install, "--format", "json")
    assert done.returncode == 0
    status = json.loads(done.stdout)
    assert (status["cluster_type"], status["gpu_type"]) == ("local", "cpu")
    what = {row["step"]: row["what"] for row in status["steps"]}
    assert {"torch 2.13.0", "transformers 5.23.0"} <= {*what["venv torch"].split(", ")}
    assert all(row["there"] for row in status["steps"])


def test_a_missing_environment_is_noticed(
    installed: tuple[Path, Path, str], run_install: Install
) -> None:
    answers, install, _ = installed
    settings = install / "venvs" / "torch" / "pyvenv.cfg"
    settings.rename(settings.with_suffix(".away"))
    plan = json.loads(run_install("--config", answers, "--dry-run", "--format", "json").stdout)
    status = json.loads(run_install("status", "--install", install, "--format", "json").stdout)
    settings.with_suffix(".away").rename(settings)
    assert [step["step"] for step in plan["steps"] if step["state"] == "todo"] == ["venv torch"]
    assert [row["step"] for row in status["steps"] if not row["there"]] == ["venv torch"]


def test_a_changed_version(run_install: Install, answers: Answers, tmp_path: Path) -> None:
    install = tmp_path / "install"
    assert run_install("--config", answers(venv_type="uv"), "--yes").returncode == 0
    first = builds(install)
    before = (install / CONFIG_FILE).read_text()

    failed = run_install("--config", answers(venv_type="uv", versions="{torch: 9.9.9}"), "--yes")
    assert failed.returncode == 1
    assert "'versions'" in failed.stderr.partition("hint: ")[2]
    assert str(install / ".llmb" / "logs" / "venv-torch.log") in failed.stderr
    assert (builds(install), versions(install)) == (first, "2.13.0 5.23.0")
    assert (install / CONFIG_FILE).read_text() == before
    assert run_install("--config", answers(venv_type="uv"), "--yes").returncode == 0
    assert builds(install) == first

    done = run_install("--config", answers(venv_type="uv", versions="{torch: 2.14.0}"), "--yes")
    assert done.returncode == 0
    assert versions(install) == "2.14.0 5.23.0"
    assert len(builds(install)) == 1
    assert builds(install) != first
    assert (install / CONFIG_FILE).read_text() == before


def test_interrupted_in_a_terminal(
    command: str,
    environ: dict[str, str],
    answers: Answers,
    new_gate: Callable[[], Any],
    tmp_path: Path,
) -> None:
    with new_gate() as gate:
        held = {**environ, "PIP_FIND_LINKS": gate.url, "TERM": "xterm", "NO_COLOR": "1"}
        argv = ["--config", str(answers(venv_type="uv"))]
        # The ^C of the terminal may split a character.
        child = pexpect.spawn(
            command, argv, env=held, encoding="utf-8", timeout=120, codec_errors="replace"
        )
        child.expect(r"\[y/N\]")
        child.send("y\r")
        child.expect("venv torch: ")
        child.expect(r"\d:\d\d:\d\d")
        assert gate.asked.wait(120)
        child.sendintr()
        child.expect("interrupted")
        child.expect(pexpect.EOF)
        child.close()
    assert (child.exitstatus, child.signalstatus) == (130, None)
    assert builds(tmp_path / "install") == []


class Indexes:
    """Two package indexes in folders: pip's own, whose torch brings CUDA's libraries, and one of
    torch alone.
    """

    def __init__(self, folder: Path, make_wheel: Callable[..., Path]) -> None:
        self.folder, self.make_wheel = folder, make_wheel
        self.add("own", "torch", "2.13.0", "nvidia_nccl==1")
        self.add("own", "nvidia_nccl", "1")
        self.add("own", "transformers", "5.23.0")
        self.variables = {
            "PIP_NO_INDEX": "",
            "PIP_FIND_LINKS": "",
            "PIP_INDEX_URL": self.url("own"),
        }

    def url(self, index: str) -> str:
        return (self.folder / index).as_uri()

    def add(self, index: str, name: str, version: str, *requires: str) -> None:
        """Put a wheel of ``name`` into an index, under the name that pip asks for."""
        wheel = self.make_wheel(
            self.folder / index / name.replace("_", "-"), name, version, *requires
        )
        (wheel.parent / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')


@pytest.fixture
def indexes(tmp_path: Path, make_wheel: Callable[..., Path]) -> Indexes:
    return Indexes(tmp_path / "indexes", make_wheel)


@pytest.mark.parametrize(
    ("gpu_type", "tool", "found"),
    [("cpu", "venv", ("2.13.0+cpu", False)), ("h100", "uv", ("2.13.0", True))],
    ids=["no GPU", "a GPU"],
)
def test_torch_without_cuda(
    run_install: Install,
    answers: Answers,
    indexes: Indexes,
    tmp_path: Path,
    gpu_type: str,
    tool: str,
    found: tuple[str, bool],
) -> None:
    indexes.add("cpu", "torch", "2.13.0+cpu")
    path = answers(
        gpu_type=gpu_type, venv_type=tool, workloads="nemotronh", torch_cpu_index=indexes.url("cpu")
    )
    done = run_install("--config", path, "--yes", **indexes.variables)
    assert done.returncode == 0, done.stderr
    packages = record(tmp_path / "install")["steps"]["venv torch"]["facts"]["packages"]
    assert (packages["torch"], "nvidia_nccl" in packages) == found


def test_torch_from_its_own_index(
    run_install: Install, answers: Answers, indexes: Indexes, tmp_path: Path
) -> None:
    indexes.add("cu126", "torch", "2.13.0+cu126")
    path = answers(
        gpu_type="h100", venv_type="uv", workloads="nemotronh", torch_index=indexes.url("cu126")
    )
    done = run_install("--config", path, "--yes", **indexes.variables)
    assert done.returncode == 0, done.stderr
    assert versions(tmp_path / "install") == "2.13.0+cu126 5.23.0"


def test_a_cpu_index_without_torch(
    run_install: Install, answers: Answers, indexes: Indexes, tmp_path: Path
) -> None:
    """A failure of the first time leaves no configuration and no environment."""
    url = indexes.url("nothing")
    done = run_install(
        "--config", answers(torch_cpu_index=url), "--yes", "--format", "json", **indexes.variables
    )
    assert done.returncode == 1
    data = json.loads(done.stdout)
    (fault,) = data["faults"]
    assert (fault["step"], fault["code"], url in fault["key"]) == (
        "venv torch",
        "program-failed",
        True,
    )
    assert "torch==2.13.0" in fault["message"], "pip's own words"
    assert data["workloads"] == []
    assert not (tmp_path / "install" / CONFIG_FILE).exists()
    assert builds(tmp_path / "install") == []
