# SPDX-License-Identifier: Apache-2.0
"""Hooks that add to what llmb says and does: causes of failures, sections of a report, names of
nodes, files beside logs, hints, and processes beside ranks.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb import api
from llmb.contract.state import FAILED
from llmb.errors import KeyFaultError
from llmb_testing.machine import Machine

Command = Callable[..., subprocess.CompletedProcess[str]]
Install = Callable[..., str]
Wording = Callable[..., None]

FULL = """
import json
from llmb.api import Failure, LogSettings, ReportSection, hookimpl

@hookimpl
def llmb_failures():
    return [
        Failure(kind="expired licence", text=("acme: licence expired",), fix="acme-licence renew"),
        Failure(kind="never", text=("CUDA out of memory",), fix="not this one"),
    ]

@hookimpl
def llmb_report(results):
    rows = tuple((row["run"], row["status"], row["ratio"]) for row in results)
    return [
        ReportSection(title="Licences <b>", text="One.\\n\\nTwo | three.", columns=("run", "status", "ratio"), rows=rows),
        ReportSection(title="Racks", text="All racks.", page="racks"),
        ReportSection(title="Seal", text="Sealed.", first=True),
    ]

@hookimpl
def llmb_nodes(name, runs):
    return {"hot": ["n5", "n7"], "none": [], "runs": [run.id for run in runs]}.get(name)

@hookimpl
def llmb_hint(program, word, words):
    return f"write: {program} results  ({' '.join(words)})" if word == "night-report" else None

@hookimpl
def llmb_log_settings(log):
    file = log.with_suffix(".json")
    return LogSettings(**json.loads(file.read_text())) if file.exists() else None
"""
LICENCE = "[rank3]: acme: licence expired on n7\n"


@pytest.fixture
def on_install(make_install: Any, llmb_here: Command) -> Command:
    """Runs llmb-run on an install directory with a run that failed."""
    made = make_install(gpu_types={})
    made.run("a1", made.job("nemotron4_15b", "bf16", 16), LICENCE, state=FAILED)
    return lambda *words: llmb_here(*words, "--install", made.folder)


def result(on_install: Command, *words: str) -> dict[str, Any]:
    (found,) = json.loads(on_install("results", "--format", "json", *words).stdout)["results"]
    return dict(found)


def test_a_cause_of_a_plugin_has_its_fix_and_outlives_it(
    install: Install, on_install: Command, site_packages: Path
) -> None:
    install("full", FULL)
    cause = result(on_install)["cause"]
    assert (cause["kind"], cause["rank"]) == ("expired licence", 3)
    assert "acme-licence renew" in on_install("explain", "a1").stdout
    assert "acme-licence renew" in on_install("report").stdout
    shutil.rmtree(site_packages / "full-1.0.dist-info")
    assert result(on_install)["cause"] == cause


def test_without_the_plugin_it_is_no_cause(on_install: Command) -> None:
    assert result(on_install)["cause"] is None


@pytest.mark.parametrize(
    ("log", "kind"),
    [(LICENCE, "expired licence"), ("RuntimeError: CUDA out of memory\n", "GPU out of memory")],
)
def test_parse_finds_the_cause_after_llmbs_own(
    log: str, kind: str, install: Install, llmb_here: Command, tmp_path: Path
) -> None:
    install("full", FULL)
    (tmp_path / "x.log").write_text(log)
    done = llmb_here("parse", tmp_path / "x.log", "--format", "json")
    assert json.loads(done.stdout)["results"][0]["cause"]["kind"] == kind


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"kind": "", "text": ("acme: x",)}, ("kind",)),
        ({"kind": "a", "text": ()}, ("text",)),
        ({"kind": "a", "text": ("x",)}, ("text", 0)),
    ],
)
def test_a_cause_that_every_log_has_is_refused(
    values: dict[str, Any], path: tuple[object, ...]
) -> None:
    with pytest.raises(KeyFaultError) as caught:
        api.Failure(**values)
    assert caught.value.path == path


def test_a_workload_has_causes_of_its_own(tmp_path: Path, llmb_machine: Machine) -> None:
    (tmp_path / "loop.yaml").write_text(
        "key: loop\ntitle: L\nlaunch: {program: loop}\nmetrics: [{name: rate}]\n"
        "failures: [{kind: full, text: 'loop: full', fix: empty it}]\n"
    )
    (failure,) = api.read_workload(tmp_path / "loop.yaml").failures
    assert (failure.kind, failure.text, failure.fix) == ("full", ("loop: full",), "empty it")


def test_a_section_is_in_both_forms_of_the_report(
    install: Install, on_install: Command, tmp_path: Path
) -> None:
    install("full", FULL)
    text = on_install("report").stdout
    assert "## Licences" in text
    assert re.search(r"\| a1 +\| Failed +\|", text)
    assert "Two | three." in text
    assert "Racks" not in text
    assert text.index("## Seal") < text.index("## Results") < text.index("## Licences")
    on_install("report", "-o", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "Licences &lt;b&gt;</h2>" in page
    assert "<td>a1</td>" in page
    places = [page.index(text) for text in ("Seal</h2>", 'id="results"', "&gt;</h2>")]
    assert places == sorted(places)
    assert re.findall(r'<a href="#section-(\d)">(\w+)', page) == [("1", "Seal"), ("2", "Licences")]


@pytest.mark.parametrize("name", ["racks.md", "racks.html"])
def test_a_page_of_a_plugin(
    name: str, install: Install, on_install: Command, tmp_path: Path, wording: Wording
) -> None:
    install("full", FULL)
    on_install("report", "--page", "racks", "-o", tmp_path / name)
    text = (tmp_path / name).read_text()
    assert ("All racks." in text, "Licences" in text) == (True, False)
    done = on_install("report", "--page", "rack")
    assert done.returncode == 2
    wording("report", done.stderr)


def test_a_wrong_section_costs_only_itself(
    install: Install, on_install: Command, wording: Wording
) -> None:
    install("bad", FULL.replace('row["ratio"])', '"x", 1)'))
    done = on_install("report")
    assert "# Benchmarks" in done.stdout
    assert "Licences" not in done.stdout
    wording("report", done.stderr)


@pytest.fixture
def previewed(cluster: Callable[..., Path], llmb_here: Command) -> Command:
    """Previews a job on a Slurm cluster."""
    folder = cluster(slurm={"gpu": {"gres": 8}})
    words = ("single", "-w", "nemotron4", "-s", "15b", "--scale", 16, "--dtype", "bf16", "-d")
    return lambda *more: llmb_here(*words, "--format", "json", *more, "--install", folder)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("@hot", "#SBATCH --exclude=n5,n7"),
        ("n1,@hot,n7", "#SBATCH --exclude=n1,n5,n7"),
        ("n[1-3]", "#SBATCH --exclude=n[1-3]"),
        ("@none", ""),
    ],
)
def test_names_of_nodes(option: str, expected: str, install: Install, previewed: Command) -> None:
    install("full", FULL)
    done = previewed("--exclude", option)
    (job,) = json.loads(done.stdout)["jobs"]
    lines = [line for line in job["script"].splitlines() if "exclude" in line]
    assert "".join(lines) == expected


def test_other_options_may_begin_with_an_at(install: Install, previewed: Command) -> None:
    install("full", FULL)
    done = previewed("--slurm-arg", "comment=@hot")
    (job,) = json.loads(done.stdout)["jobs"]
    assert "#SBATCH --comment=@hot" in job["script"].splitlines()


@pytest.mark.parametrize("words", [("--exclude", "@moon"), ("--nodelist", "@none")])
def test_a_name_of_no_node_is_refused(
    words: tuple[str, str], install: Install, previewed: Command, wording: Wording
) -> None:
    install("full", FULL)
    done = previewed(*words)
    assert done.returncode == 2
    wording("single", done.stderr)


def test_a_retry_knows_names_of_nodes_too(
    install: Install, make_install: Any, llmb_here: Command
) -> None:
    install("full", FULL)
    made = make_install(gpu_types={})
    made.run("a1", made.job("nemotron4_15b", "bf16", 16), LICENCE, state=FAILED)
    file = made.folder / "cluster_config.yaml"
    slurm = "cluster_type: slurm\nslurm: {gpu: {partition: gpu}}"
    file.write_text(file.read_text().replace("cluster_type: local", slurm))
    words = ("jobs", "retry", "a1", "--exclude", "@moon", "--install", made.folder)
    done = llmb_here(*words)
    assert done.returncode == 2
    assert "@moon names no nodes" in done.stderr


def test_a_word_that_llmb_does_not_know(install: Install, llmb_here: Command) -> None:
    install("full", FULL)
    done = llmb_here("night-report", "--all")
    assert done.returncode == 2
    assert "hint: write: llmb-run results  (night-report --all)" in done.stderr
    assert "write:" not in llmb_here("nightreport").stderr


@pytest.mark.parametrize("word", ["night-report", "--night-report"])
def test_a_word_that_the_installer_does_not_know(
    word: str, install: Install, site_packages: Path, llmb_program: str
) -> None:
    install("full", FULL.replace('word == "night-report"', 'word.strip("-") == "night-report"'))
    words = [str(Path(llmb_program).with_name("llmb-install")), word]
    environment = {**os.environ, "PYTHONPATH": str(site_packages)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert f"hint: write: llmb-install results  ({word})" in done.stderr


def test_a_file_beside_a_log_says_what_ran(
    install: Install, llmb_here: Command, tmp_path: Path
) -> None:
    install("full", FULL)
    (tmp_path / "x.log").write_text(
        "".join(
            f"Training epoch 0, iteration {i}/49 | train_step_timing in s: {2 + i / 100}\n"
            for i in range(50)
        )
    )
    settings = {"workload": "pretrain_nemotron4", "size": "15b", "dtype": "bf16", "gpus": 16}
    (tmp_path / "x.json").write_text(json.dumps({**settings, "gpu_type": "h100", "window": None}))

    def parse(*words: str) -> dict[str, Any]:
        done = llmb_here("parse", tmp_path / "x.log", "--format", "json", *words)
        return dict(json.loads(done.stdout)["results"][0])

    found = parse()["configuration"]
    assert (found["workload"], found["model_size"], found["scale"]) == (
        "pretrain_nemotron4",
        "15b",
        16,
    )
    assert parse("--scale", "32")["configuration"]["scale"] == 32  # options come first
    (tmp_path / "x.json").write_text("{")
    broken = llmb_here("parse", tmp_path / "x.log")
    assert "llmb_log_settings" in broken.stderr
    assert broken.returncode == 0


SITE = """
from llmb.api import ForeignInstall, hookimpl

@hookimpl
def llmb_import(folder):
    file = folder / "cluster_config.yaml"
    if not file.is_file() or "acme:" not in file.read_text():
        return None
    return ForeignInstall(
        program="acme-bench", vendor="Acme", folder=folder, release="7", gpu_type="h100",
        gpu={"partition": "gpu"}, environment={"NCCL_DEBUG": "WARN", "HF_TOKEN": "hf_x"},
        images={folder / "a.sqsh": ""}, runs=(folder / "results",),
    )
"""


def test_an_install_directory_of_another_tool(
    install: Install,
    llmb_here: Command,
    tmp_path: Path,
    site_packages: Path,
    llmb_program: str,
    wording: Wording,
) -> None:
    install("acme", SITE)
    folder = tmp_path / "theirs"
    (folder / "results").mkdir(parents=True)
    (folder / "cluster_config.yaml").write_text("acme: 7\n")
    refused = llmb_here("results", "--install", folder)
    assert refused.returncode == 2
    wording("results", refused.stderr)
    program = str(Path(llmb_program).with_name("llmb-install"))
    environment = {**os.environ, "PYTHONPATH": str(site_packages)}

    def run(*words: str) -> str:
        argv = [program, "import", str(folder), *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
        return done.stdout

    items = json.loads(run("--dry-run", "--format", "json"))["items"]
    codes = {item["name"]: (item["action"], item["code"]) for item in items}
    assert codes["NCCL_DEBUG"] == ("take", "")
    assert codes["HF_TOKEN"] == ("leave", "secret-consent")
    assert codes["a.sqsh"][0] == "leave"  # there is no such file
    run("--yes")
    config = (tmp_path / "theirs-llmb" / "cluster_config.yaml").read_text()
    assert "NCCL_DEBUG: WARN" in config
    assert "hf_x" not in config


BESIDE = """
from pathlib import Path
from dataclasses import replace
from llmb.api import Command, Program, beside, hookimpl, read_workload

@hookimpl
def llmb_workload():
    return read_workload(Path(__file__).with_name("loop.yaml"))

@hookimpl
def llmb_launch():
    side = beside("power", ("bash", "-c", "trap 'echo ended; exit' TERM; echo begun; while :; do sleep 0.1; done"))
    return Command(program=Program(shell="sleep 1; echo rate 5; exit $1"), args=("3",), wrappers=(side,))
"""


def test_a_process_beside_the_ranks_lives_as_long_as_they(
    llmb_machine: Machine, llmb_here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/loop.py").write_text(BESIDE)
    (tmp_path / "plugins/loop.yaml").write_text(
        "key: loop\ntitle: L\nmetrics: [{name: rate}]\nsizes: {one: {whole_nodes: false, rows: [{scales: [2]}]}}\n"
    )
    monkeypatch.setenv("LLMB_PLUGINS", str(tmp_path / "plugins"))
    done = llmb_here("single", "-w", "loop", "--scale", 2, "--wait")
    assert done.returncode == 3, done.stderr  # as the ranks end
    (output,) = llmb_machine.folder.glob("workloads/loop/experiments/*/*/*/beside-power-0.out")
    lines = output.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("begun", "ended")
