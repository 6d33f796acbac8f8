# SPDX-License-Identifier: Apache-2.0
"""Every command with ``--format json`` has a schema, which accepts its output without unknown
fields.
"""

import importlib.util
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import jsonschema
import pytest
from click.testing import CliRunner

from llmb.cli import app
from llmb.cli.submit.announce import print_submitted
from llmb.contract import record
from llmb.contract.command import StagedFile
from llmb.errors import Fault
from llmb_accept import acceptance, certificate
from llmb_accept.judge import Assessment, Evidence, Item, PhaseOutcome
from llmb_installer.applying.apply import InstallOutcome
from llmb_installer.cli import cli as installer
from llmb_installer.record import InstallRecord
from llmb_nodes import diagnosis
from llmb_nodes.commands import print_object
from llmb_nodes.history import TABLE
from llmb_nodes.program import exchange
from llmb_nodes.program.strategy import Outcome, SearchPlan
from llmb_nodes.simulation import Faults, simulate
from llmb_nodes.table import table_for
from llmb_testing import exemplar_folder
from llmb_testing.json_schemas import strict

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Check = Callable[[str, str], Any]
DOCS = Path(__file__).parents[4] / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fields", DOCS / "fields.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=[False, True], ids=["as shipped", "strict"])
def validate(request: pytest.FixtureRequest) -> Check:
    def check(name: str, text: str) -> Any:
        schema = json.loads((DOCS / f"schemas/{name}.json").read_text("utf-8"))
        schema = strict(schema) if request.param else schema
        jsonschema.Draft202012Validator.check_schema(schema)
        data = json.loads(text)
        jsonschema.Draft202012Validator(schema).validate(data)
        return data

    return check


def json_commands(command: click.Command, name: str) -> Iterator[str]:
    """Yield the commands that have ``--format json``."""
    for param in command.params:
        if "--format" in param.opts and "json" in getattr(param.type, "choices", ()):
            yield name
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for child in command.list_commands(context):
            below = command.get_command(context, child)
            assert below is not None
            yield from json_commands(below, f"{name} {child}")


def test_every_command_with_json_has_schemas(script: ModuleType) -> None:
    programs = {"llmb-run": app.build(app.load()), "llmb-install": installer}
    names = {own for name, program in programs.items() for own in json_commands(program, name)}
    assert names == set(script.COMMANDS)
    described = {schema for schemas in script.COMMANDS.values() for schema in schemas}
    assert described == set(script.schemas())
    assert {path.stem for path in (DOCS / "schemas").glob("*.json")} == described


def test_lists_of_llmb_run(install: Any, run: Run, llmb_here: Run, validate: Check) -> None:
    install.measured("a0", 2.7)
    assert run("baseline", "accept", "good").returncode == 0
    assert validate("baselines", run("baseline", "list", "--format", "json").stdout)
    assert validate("results", run("baseline", "show", "good", "--format", "json").stdout)
    assert validate("plugins", llmb_here("plugins", "list", "--format", "json").stdout)
    assert validate("plugins", llmb_here("plugins", "--format", "json").stdout)


def test_one_run(install: Any, run: Run, validate: Check) -> None:
    install.measured("a0", 2.7)
    install.run("b1", install.job("nemotron4_15b", "bf16", 16), None, "CANCELLED")
    for name in ("a0", "b1"):
        data = validate("run", run("jobs", "show", name, "--format", "json").stdout)
        assert data["id"] == name


def test_submitted_jobs(install: Any, validate: Check, capsys: pytest.CaptureFixture[str]) -> None:
    print_submitted([install.measured("a0", 2.7)], "json")
    assert validate("submitted", capsys.readouterr().out)


def test_a_check_of_nodes(install: Any, run: Run, validate: Check) -> None:
    job = replace(
        install.job("nemotron4_15b", "bf16", 16), workload="node_check", model_size="quick"
    )
    check = install.run("k1", job, None)
    table = StagedFile(name=TABLE, text=json.dumps(table_for("h100", 8)))
    record.save(replace(check, launch=replace(check.launch, files=(table,))))
    check.work.mkdir(parents=True, exist_ok=True)
    for node, speed in (("n1", 100.0), ("n2", 99.0), ("n3", 40.0)):
        for rank in range(8):
            report: Mapping[str, Any] = {
                "node": node,
                "local_rank": rank,
                "facts": {"driver": {"value": "570"}, "ecc": {"absent": "no permission"}},
                "rounds": [{"memory": {"value": speed}}, {"memory": {"value": speed}}],
            }
            exchange.write(check.work, report)
    shown = run("nodes", "show", "--check", "k1", "--format", "json").stdout
    assert len(validate("nodes-check", shown)["nodes"]) == 3
    assert len(validate("nodes-history", run("nodes", "show", "--format", "json").stdout)["nodes"])
    suspects = validate("suspects", run("nodes", "suspects", "--format", "json").stdout)
    assert [node["name"] for node in suspects["nodes"]] == ["n3"]


def test_a_diagnosis(validate: Check, capsys: pytest.CaptureFixture[str]) -> None:
    plan = SearchPlan(tuple(f"n{number}" for number in range(16)))
    for factor in (0.6, 0.0):
        simulated = simulate(plan, Faults(nodes={"n5": factor}))
        rounds = [[(test, Outcome(value=50.0)) for test in tests] for tests in simulated.rounds]
        report = diagnosis.DiagnosisReport(plan=plan, rounds=rounds, diagnosis=simulated.diagnosis)
        capsys.readouterr()
        print_object(diagnosis.as_data(report))
        assert validate("diagnosis", capsys.readouterr().out)["findings"]


@pytest.fixture
def issued(install: Any) -> Any:
    """A complete acceptance in the install directory, with a certificate on disk."""
    begun = acceptance.Acceptance(
        name="old",
        plan_text="title: A\nphases:\n  - {name: health, check: quick}\n",
        plan_file="a.yaml",
        cluster="kit",
        gpu_type="h100",
        gpus_per_node=8,
        nodes=("n1", "n2"),
        names_nodes=True,
        created="2026-11-26T12:00:00+00:00",
    )
    items = (
        Item(name="check", nodes=("n1",), status="passed", text="OK", run="r1"),
        Item(name="check", nodes=("n2",), status="failed", text="FAULT"),
    )
    phase = PhaseOutcome(name="health", status="failed", items=items, left={"n2": "FAULT"})
    made = certificate.make(begun, Assessment(phases=(phase,)), Evidence(), begun.created)
    root = acceptance.root_of(install.config)
    acceptance.save(root, begun)
    acceptance.save_certificate(root, "old", made)
    return root, made


def test_a_certificate(issued: Any, run: Run, validate: Check) -> None:
    root, made = issued
    data = validate("certificate", run("accept", "show", "--format", "json").stdout)
    assert data["answer"] == "NOT_ACCEPTED"
    older = {key: value for key, value in made.items() if key != "baseline"}
    acceptance.save_certificate(root, "old", older)
    assert validate("certificate", run("accept", "show", "--format", "json").stdout)


def test_a_plan_of_an_acceptance(tmp_path: Path, llmb_here: Run, validate: Check) -> None:
    config = {
        "schema_version": 2,
        "cluster_type": "slurm",
        "cluster_name": "far",
        "gpu_type": "h100",
        "slurm": {"container": "none", "gpu": {"partition": "gpu", "gres": 8}},
        "workloads": {"installed": ["microbench", "node_check"]},
    }
    (tmp_path / "cluster_config.yaml").write_text(json.dumps(config))
    words = ("--nodelist", "n[1-4]", "--dry-run", "--format", "json", "--install", tmp_path)
    data = validate("acceptance-plan", llmb_here("accept", "quick", *words).stdout)
    assert data["rows"]
    diagnose = ("nodes", "diagnose", *words)
    assert validate("diagnosis-plan", llmb_here(*diagnose).stdout)["nodes"] == 4
    assert validate("dry-run", llmb_here("nodes", "check", *words).stdout)["jobs"]


def test_an_installation(install: Any, validate: Check) -> None:
    folder = str(install.folder)
    for command, name in (
        ("status", "install-status"),
        ("verify", "install-verify"),
        ("doctor", "doctor"),
    ):
        words = [command, "--install", folder, "--format", "json"]
        assert validate(name, CliRunner().invoke(installer, words).stdout)


def test_a_plan_and_an_outcome_of_an_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validate: Check
) -> None:
    answers = tmp_path / "answers.yaml"
    common = f"cluster_type: local\ninstall: {tmp_path / 'new'}\ngpu_type: cpu\nvenv_type: venv\n"
    answers.write_text(common + "workloads: [nemotron4]\n")
    words = ["--config", str(answers), "--format", "json"]
    done = CliRunner().invoke(installer, [*words, "--dry-run"])
    assert validate("install-plan", done.stdout)["steps"]
    fault = Fault(place="venv torch", message="no space", code="disk-full", value=("a", 1))
    outcome = InstallOutcome(
        record=InstallRecord(),
        notes=("a note",),
        ready=(),
        lacking={"nemotron4": ("venv torch",)},
        faults=(fault,),
    )
    monkeypatch.setattr("llmb_installer.applying.install.apply", lambda _intent: outcome)
    done = CliRunner().invoke(installer, [*words, "--yes"])
    assert validate("install-outcome", done.stdout)["faults"]


def test_an_import(tmp_path: Path, validate: Check) -> None:
    folder = tmp_path / "theirs"
    exemplar_folder.write_config(folder, "26.05")
    exemplar_folder.write_image(folder / "images" / "nvidia+nemo+25.04.01.sqsh")
    words = ["import", str(folder), "--dry-run", "--format", "json"]
    assert validate("install-import", CliRunner().invoke(installer, words).stdout)["items"]
