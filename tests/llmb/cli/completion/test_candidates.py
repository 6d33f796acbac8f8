# SPDX-License-Identifier: Apache-2.0
"""Tests of what a line of llmb-run and llmb-install may continue with."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.cli import app
from llmb.cli.completion import engine, lookups, values
from llmb.cli.context import CliContext
from llmb.plugins.loaded import Plugins
from llmb_installer.cli import cli
from llmb_installer.commands import completion

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]
Complete = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return app.load()


@pytest.fixture
def complete(plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """The values that a line of llmb-run may continue with, in a folder without an install
    directory.
    """
    monkeypatch.chdir(tmp_path)
    group = app.build(plugins)

    def ask(line: str) -> list[str]:
        found = engine.candidates(
            group, "llmb-run", line, values.COMPLETERS, {"obj": CliContext(plugins)}
        )
        return [one.value or f"<{one.kind}>" for one in found]

    return ask


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("llmb-run jobs re", ["reconcile", "retry"]),
        ("llmb-run completion ", ["bash", "zsh", "fish"]),
        ("llmb-run jobs logs --pa", ["--path"]),
        ("llmb-run list --format ", ["table", "json", "csv", "md"]),
        ("llmb-run list --format=js", ["--format=json"]),
        ("llmb-run list -w pretrain_nemotron4_3", ["pretrain_nemotron4_340b"]),
        ("llmb-run list -w nemotron4_3", ["nemotron4_340b"]),
        ("llmb-run single -w nemotron-h -s ", ["56b", "smoke", "tiny"]),
        ("llmb-run single --workload=nemotronh --size t", ["tiny"]),
        ("llmb-run single -w nemotron4_340b --dtype ", ["fp8", "bf16"]),
        ("llmb-run single -w nemotronh_56b --scale 2", ["256", "2048"]),
        ("llmb-run submit-all --dtype bf16,fp3", ["bf16,fp32"]),
        (
            "llmb-run submit-all --dtype fp8 --workloads pretrain_nemotron4,pretrain_nemotronh_t",
            ["pretrain_nemotron4,pretrain_nemotronh_tiny"],
        ),
        ("llmb-run submit-all jobs", ["<file>"]),
        ("llmb-run bulk --file x", ["<file>"]),
        ("llmb-run single --image ", ["<file>"]),
        ("llmb-run list --install ", ["<file>"]),
        ("llmb-run single --set to", ["tokenizer="]),
        ("llmb-run single --set tokenizer=", ["tokenizer=null", "tokenizer=hub"]),
        ("llmb-run single -w microbench --set mes", ["message_size="]),
        ("llmb-run single --gpu-type h", ["h100", "h200"]),
        ("llmb-run single --framework ", ["nemo", "bridge"]),
        ("llmb-run jobs list --state comple", ["completed", "completing"]),
        ("LLMB_INSTALL=/x llmb-run jobs wa", ["wait"]),
        ("/opt/llmb/bin/llmb-run jobs wa", ["wait"]),
        ("alias-of-it jobs wa", ["wait"]),
        ("llmb-run jobs show ", []),  # there is no install directory
        ("llmb-run single --nodelist ", []),  # nor a Slurm
        ("llmb-run single -w nonsense -s ", ["15b"]),
        ("llmb-run nonsense ", []),
        ("llmb-run list -w 'pretrain_nemotronh_s", ["pretrain_nemotronh_smoke"]),
        ("llmb-run single --max-steps ", []),
    ],
)
def test_lines(
    line: str, wanted: list[str], complete: Complete, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    found = complete(line)
    assert (wanted == ["15b"] and "15b" in found) or found == wanted


def test_every_command_and_every_option_can_be_completed(
    complete: Complete, plugins: Plugins
) -> None:
    """The commands of --help, those of plugins included, and their options."""
    commands = app.build(plugins).commands
    listed = [name for name, command in commands.items() if not command.hidden]
    assert complete("llmb-run ") == sorted(listed)
    for name in commands:
        assert "--help" in complete(f"llmb-run {name} --")


def test_workloads_are_those_of_the_list(complete: Complete, llmb_here: Command) -> None:
    listed = json.loads(llmb_here("list", "--format", "json").stdout)
    assert complete("llmb-run list -w ") == list(dict.fromkeys(row["workload"] for row in listed))
    for key in {row["workload"] for row in listed}:
        sizes = [row["size"] for row in listed if row["workload"] == key]
        assert complete(f"llmb-run single -w {key} -s ") == sizes


def test_the_install_directory_gives_its_gpu_types(complete: Complete, cluster: Cluster) -> None:
    install = cluster(gpu_types={"h200": {"like": "h100"}})
    assert complete(f"llmb-run single --install {install} --gpu-type ") == ["h100", "h200"]


def test_baselines_and_archives(complete: Complete, cluster: Cluster, tmp_path: Path) -> None:
    install = cluster("local", "cpu")
    for name in ("april", "may"):
        path = install / f".llmb/baselines/{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (tmp_path / "night.tar.zst").touch()
    for command in ("compare", "report"):
        assert complete(f"llmb-run {command} --install {install} --baseline ") == [
            "april",
            "may",
            "<file>",
        ]
        assert (
            complete(f"llmb-run {command} --install {install} --baseline=ap")[0]
            == "--baseline=april"
        )
    for command in ("results", "report", "explain", "jobs show"):
        assert complete(f"llmb-run {command} --install {install} ") == ["night.tar.zst"]
    assert complete(f"llmb-run jobs cancel --install {install} ") == []


def test_sessions_are_the_newest_first_by_their_names(complete: Complete, cluster: Cluster) -> None:
    install = cluster("local", "cpu")
    folder = install / "workloads/.sessions"
    folder.mkdir(parents=True)
    names = {"2026-11-22a": "before", "2026-11-23z": None, "2026-11-23aa": "after", "broken": None}
    for session_id, name in names.items():
        data = json.dumps({"id": session_id, "name": name, "command": "llmb-run submit jobs.txt"})
        (folder / f"{session_id}.json").write_text(data if session_id != "broken" else "{")
    for command in ("results", "compare", "report", "jobs", "submit"):
        assert complete(f"llmb-run {command} --install {install} --session ") == [
            "after",
            "2026-11-23z",
            "before",
        ]


def test_runs_are_the_newest_first(complete: Complete, cluster: Cluster) -> None:
    install = cluster("local", "cpu")
    for number, name in ((1, "aaa11111"), (3, "abc33333"), (2, "bbb22222")):
        folder = install / f"workloads/w/experiments/pretrain_x/pretrain_x_{number}"
        folder.mkdir(parents=True)
        head = '{\n  "schema_version": 1,\n  "scheduler_id": "7",          \n'
        (folder / "llmb-run.json").write_text(f'{head}  "id": "{name}",\n  "created": 1.0')
        (folder / "state.json").write_text('{\n  "state": "COMPLETED"}')
    for command in ("jobs show", "jobs cancel", "explain", "results"):
        assert complete(f"llmb-run {command} --install {install} ") == [
            "abc33333",
            "bbb22222",
            "aaa11111",
        ]
    assert complete(f"llmb-run jobs cancel --install {install} abc33333 a") == ["aaa11111"]
    assert complete(f"llmb-run jobs cancel --install {install} ./") == ["<folder>"]
    assert complete(f"llmb-run jobs show --install {install} ./") == ["<file>"]  # an archive
    config = CliContext(app.load())
    config.install_option = install
    assert list(lookups.runs(config.config, "aaa")) == [("aaa11111", "x COMPLETED")]


def test_a_record_has_its_id_at_its_beginning(
    complete: Complete, cluster: Cluster, llmb_here: Command
) -> None:
    install = cluster("local", "cpu")
    done = llmb_here(
        "single", "-w", "nemotron4_tiny", "--scale", 1, "--install", install, "--no-preflight"
    )
    assert done.returncode == 0, done.stderr
    assert llmb_here("jobs", "cancel", "--all", "--install", install).returncode == 0
    (row,) = json.loads(llmb_here("jobs", "--install", install, "--format", "json").stdout)
    assert complete(f"llmb-run jobs show --install {install} ") == [row["id"]]


@pytest.fixture
def sinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An sinfo on PATH, as Slurm 22.05 prints nodes and partitions; the file has a line for each
    call.
    """
    calls, program = tmp_path / "calls", tmp_path / "bin" / "sinfo"
    program.parent.mkdir()
    lines = ("n1|batch*|gpu:h100:8(S:0-1)", "n1|debug|gpu:h100:8", "n2|batch*|gpu:8,nvme:1")
    quoted = " ".join(f"'{line}'" for line in lines)
    program.write_text(f"#!/bin/sh\necho $* >> {calls}\nprintf '%s\\n' {quoted}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return calls


def test_nodes_are_asked_once_a_minute(
    complete: Complete, sinfo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {"nodelist", "exclude", "partition"} <= values.COMPLETERS.keys()
    assert lookups.nodes() == ["n1", "n2"]
    assert lookups.partitions() == ["batch", "debug"]
    assert [lookups.most_gpus(name) for name in (None, "batch", "debug", "gone")] == [
        16,
        16,
        8,
        None,
    ]
    assert len(sinfo.read_text().splitlines()) == 1
    monkeypatch.setenv("SLURM_CONF", "/other")  # another cluster
    lookups.nodes()
    assert len(sinfo.read_text().splitlines()) == 2
    monkeypatch.setattr(lookups, "_KEPT_SECONDS", 0.0)
    lookups.nodes()
    assert len(sinfo.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("llmb-install re", ["remove"]),
        ("llmb-install --dr", ["--dry-run"]),
        ("llmb-install --config ", ["<file>"]),
        ("llmb-install --set slurm.gpu.part", ["slurm.gpu.partition="]),
        (
            "llmb-install --set venv_type=",
            [f"venv_type={word}" for word in ("auto", "uv", "venv", "conda")],
        ),
        ("llmb-install doctor --cluster-type lo", ["local"]),
        (
            "llmb-install add pretrain_nemotron4 pretrain_nemotron",
            ["pretrain_nemotron3", "pretrain_nemotronh"],
        ),
        ("llmb-install image --builder s", ["stream"]),
        ("llmb-install completion f", ["fish"]),
    ],
)
def test_lines_of_the_installer(
    line: str, wanted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = engine.candidates(cli, "llmb-install", line, completion.COMPLETERS, {})
    assert [one.value or f"<{one.kind}>" for one in found] == wanted


def test_the_installer_adds_what_is_missing_and_removes_what_is_there(cluster: Cluster) -> None:
    install = cluster("local", "cpu", workloads={"installed": ["pretrain_nemotron4"]})

    def ask(line: str) -> list[str]:
        found = engine.candidates(cli, "llmb-install", line, completion.COMPLETERS, {})
        return [one.value for one in found]

    assert ask(f"llmb-install remove --install {install} ") == ["pretrain_nemotron4"]
    assert "pretrain_nemotron4" not in (added := ask(f"llmb-install add --install {install} "))
    assert "pretrain_llama3.1" in added


ERRORS = (
    "llmb-run jobs show ",
    "llmb-run --nonsense=",
    "",
    "\x00",
    "llmb-run list -w '",
    "llmb-run single --set =",
)


@pytest.mark.parametrize("line", ERRORS)
def test_nothing_but_candidates_is_printed_whatever_fails(
    line: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    install = cluster()
    (install / "cluster_config.yaml").write_text("a: [")
    monkeypatch.chdir(install)
    monkeypatch.setenv(engine.variable_of("llmb-run"), "bash")
    if "\x00" not in line:
        monkeypatch.setenv("COMP_LINE", line)
    assert app._complete() in (0, 1)
    printed = capfd.readouterr()
    assert printed.err == ""
    assert all(
        one.split("\t")[0] in ("word", "open", "file", "folder") for one in printed.out.splitlines()
    )


def test_a_plugin_that_fails_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> Plugins:
        print("noise", file=sys.stderr)
        raise RuntimeError("broken")

    monkeypatch.setattr(app, "load", fail)
    monkeypatch.setenv(engine.variable_of("llmb-run"), "zsh")
    assert app._complete() == 1
    assert capfd.readouterr() == ("", "")


def test_the_variables_of_both_programs_are_the_ones_that_start_completion() -> None:
    from llmb_installer import cli as installer

    assert engine.variable_of("llmb-run") == app._COMPLETING
    assert engine.variable_of("llmb-install") == installer._COMPLETING
