# SPDX-License-Identifier: Apache-2.0
"""Tests of docs/exemplar.yaml: what commands, launches and lists of NVIDIA's documents do here, as
dry runs.
"""

import importlib.util
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import yaml

from llmb.cli import app
from llmb.cli.context import CliContext
from llmb_exemplar import llmb_variables
from llmb_exemplar.words import Replacement, programs
from llmb_installer.cli import cli as install_group

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]
Example = dict[str, Any]

ROOT = next(
    folder for folder in Path(__file__).resolve().parents if (folder / "pyproject.toml").is_file()
)
EXAMPLES: dict[str, list[Example]] = yaml.safe_load(
    (ROOT / "docs/exemplar.yaml").read_text(encoding="utf-8")
)
RUNAI = {
    "base_url": "https://x/api/v1",
    "project": "p",
    "pvc": {"name": "w", "path": "/w", "claim": "c"},
}
ONE = "pretrain_nemotron4_15b:\n('fp8', [16], 1)\n"


@pytest.fixture
def dry(
    llmb_here: Command, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Example, str], "subprocess.CompletedProcess[str]"]:
    """Runs a command line of an example as a dry run on its cluster; words ``A=b`` before it are
    variables.
    """

    def run(example: Example, line: str) -> "subprocess.CompletedProcess[str]":
        kind = example.get("cluster", "slurm")
        install = cluster(
            kind, example.get("gpu", "h100"), **({"runai": RUNAI} if kind == "runai" else {})
        )
        words = shlex.split(line)
        while re.match(r"[A-Z_]+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            monkeypatch.setenv(name, value)
        (tmp_path / "jobs.txt").write_text(ONE)
        monkeypatch.chdir(tmp_path)
        asks = ["-d", "--format", "json"] if words[1] != "jobs" and "report" not in words else []
        return llmb_here(*words[1:], "--install", install, *asks)

    return run


def assert_jobs(example: Example, done: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    jobs: list[dict[str, Any]] = json.loads(done.stdout)["jobs"]
    names = [job["experiment_name"] for job in jobs]
    expected = example["jobs"]
    assert len(names) == expected if isinstance(expected, int) else names == expected
    return jobs


def name_of(example: Example) -> str:
    return str(example["theirs"])


@pytest.mark.parametrize("example", EXAMPLES["launch"], ids=name_of)
def test_launches(example: Example, dry: Callable[..., "subprocess.CompletedProcess[str]"]) -> None:
    variables = " ".join(word for word in example["theirs"].split() if re.match(r"[A-Z_]+=", word))
    assert_jobs(example, dry(example, f"{variables} llmb-run single -w {example['workload']}"))


@pytest.mark.parametrize("example", EXAMPLES["commands"], ids=name_of)
def test_commands(
    example: Example, dry: Callable[..., "subprocess.CompletedProcess[str]"], codes: list[str]
) -> None:
    done = dry(example, example["theirs"])
    if "refused" not in example:
        assert_jobs(example, done)
        return
    assert (done.returncode, done.stdout, codes) == (2, "", [example["refused"]])
    hint = done.stderr.partition("hint: write: ")[2].partition("\n")[0]
    if hint:
        ours = shlex.split(hint.partition("  (")[0])
        added = {"-d", "--format", "json", "--install", ours[ours.index("--install") + 1]}
        assert [word for word in ours if word not in added] == shlex.split(example["ours"])
    accepts(shlex.split(example["ours"]))


def accepts(words: list[str]) -> None:
    """Fail where ``words`` would be wrong usage; nothing is run."""
    plugins = app.load()
    command: click.Command | None = app.build(plugins)
    context, rest = click.Context(app.build(plugins), obj=CliContext(plugins)), words[1:]
    while isinstance(command, click.Group) and rest:
        command = command.get_command(context, rest.pop(0))
    assert command is not None, words
    command.make_context(command.name, rest, parent=context)


@pytest.mark.parametrize("example", EXAMPLES["lists"], ids=lambda example: example["text"][:60])
def test_lists(
    example: Example, dry: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    path = tmp_path / f"own-{example['name']}"
    path.write_text(example["text"])
    done = dry(example, f"llmb-run submit {path}")
    if "refused" in example:
        assert (done.returncode, done.stdout) == (2, "")
        assert str(path) in done.stderr
        return
    for job in assert_jobs(example, done):
        if job["workload"].startswith(example.get("of", "")):
            assert {**job["env"], **example.get("env", {})} == job["env"]


@pytest.fixture(scope="module")
def page() -> ModuleType:
    path = ROOT / "docs/exemplar.py"
    spec = importlib.util.spec_from_file_location("exemplar", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_the_tables(page: ModuleType) -> None:
    assert page.main(["--check"]) == 0, "python docs/exemplar.py writes it"


def rows() -> list[tuple[str, str, Replacement]]:
    return [
        (program, name, row)
        for program, own in programs().items()
        for name, row in [*own.commands.items(), *own.options.items()]
    ]


@pytest.mark.parametrize(
    ("program", "name", "row"), rows(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_each_row_is_of_theirs_alone_and_ours_exists(
    program: str, name: str, row: Replacement
) -> None:
    group = app.build(app.load()) if program == "llmb-run" else install_group
    context = click.Context(group)
    commands = [
        found
        for known in group.commands
        if (found := group.get_command(context, known)) is not None
    ]
    commands += [
        found
        for one in commands
        if isinstance(one, click.Group)
        for known in one.commands
        if (found := one.get_command(context, known)) is not None
    ]
    params = [own for one in (group, *commands) for own in one.params]
    options = {option for own in params for option in (*own.opts, *own.secondary_opts)}
    for text in (row.write, row.more, *(own.write for own in row.options.values())):
        flags = [word for word in text.split() if word.startswith("-")]
        assert set(flags) <= options, text
        words = [
            word
            for word in text.split()
            if not word.startswith("-") and re.fullmatch("[a-z-]+", word)
        ]
        if words and not text.startswith("-"):
            assert words[0] in group.commands
    if not name.startswith("-"):
        assert group.get_command(context, name) is None


def test_every_option_of_theirs_is_known() -> None:
    """The options of NVIDIA's llmb-run 26.08 and llmb-install 26.06, and those that only older
    releases had.
    """
    theirs: Mapping[str, str] = {
        "submit": (
            "-w --workload -s --model-size --dtype --scale --max-scale --min-scale --exact-scales"
            " -f --file -r --repeats -p --profile --dump-env --proxy --dry-run --force --nice"
            " --nodelist --exclude --reservation --segment --slurm-arg --env --mbridge-arg"
        ),
        "single": (
            "-w --workload -s --model_size --dtype --scale -p --profile -d --dryrun -v --verbose"
        ),
        "submit-all": "--max-scale --repeats -p --profile -d --dryrun -v --verbose",
        "list": "-w --workload",
    }
    group = app.build(app.load())
    table = programs()["llmb-run"].options
    for name, flags in theirs.items():
        command = group.get_command(click.Context(group), name)
        assert command is not None
        own = {option for one in command.params for option in one.opts}
        assert [flag for flag in flags.split() if flag not in own and flag not in table] == []
    install = "-v --verbose -i --image-folder -d --dev-mode --record --play --ui-mode"
    own = {option for one in install_group.params for option in one.opts}
    known = programs()["llmb-install"]
    assert [flag for flag in install.split() if flag not in own and flag not in known.options] == []
    express = known.commands["express"].options
    assert {
        "--install-path",
        "-w",
        "--workloads",
        "--exemplar",
        "--list-workloads",
    } <= express.keys()


def test_every_variable_of_the_scripts_is_known() -> None:
    """Those of the seeds' pages and of the launch scripts of releases 25.04 to 26.06."""
    names = (
        "JOB_TOTAL_GPUS GPU_TYPE DTYPE MODEL_SIZE GBS MAX_STEPS TIME_LIMIT STRONG_SCALING"
        " GPUS_PER_NODE CLUSTER_TYPE ENABLE_PROFILE PROFILE_START_STEP PROFILE_STOP_STEP"
        " PROFILE_RANKS ENABLE_GPU_METRICS ENABLE_NCCLTRACE ENABLE_CHECKPOINT LOAD_CHECKPOINT_PATH"
        " ENABLE_VBOOST RUN_CONF_IMAGE RUN_CONF_MOUNTS RUN_CONF_MAX_STEPS TP PP CP VP MBS"
        " NUM_LAYERS HIDDEN_SIZE FSDP CPU_PER_TASK_PINNING ADDITIONAL_SLURM_PARAMS FP8_RECIPE"
        " NUM_NODES CHECKPOINT_INTERVAL CONFIG_VARIANT OPTIMIZATION_NAME SBATCH_RESERVATION"
        " SBATCH_QOS SBATCH_ACCOUNT SBATCH_PARTITION TP_COMM_OVERLAP ENABLE_PYTORCH_PROFILE"
        " ENABLE_PCT_BINDING CHECKPOINT_DIR"
    )
    assert set(names.split()) == {variable.name for variable in llmb_variables()}
    for variable in llmb_variables():
        assert variable.instead("1", of_list=True) or variable.note
        assert variable.sets or not variable.of_config


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("microbenchmark_nccl", "microbench_all_reduce"),
        ("microbenchmark_cpu_overhead", "microbench_launch"),
        ("_system_info", "llmb-run nodes check"),
        ("_llmb_collector", "llmb-run docs telemetry"),
        ("pretraining_nemotron", "pretrain_nemotron4"),
    ],
)
@pytest.mark.parametrize("command", ["submit -w {} -d", "submit -w {} --scale 8 -d", "list -w {}"])
def test_their_names_of_other_things_are_answered(
    command: str, name: str, ours: str, cluster: Cluster, llmb_here: Command
) -> None:
    words = command.format(name).split()
    done = llmb_here(*words, "--install", cluster("slurm", "h100"))
    assert done.returncode == 2
    assert f"no workload is called '{name}'" in done.stderr
    assert ours in done.stderr


@pytest.mark.parametrize("options", [(), ("--keep-going",)])
def test_their_names_in_a_list_are_answered(
    options: tuple[str, ...], cluster: Cluster, llmb_here: Command, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("microbenchmark_nccl: {scales: [8]}\nnemotron4_15b: {scales: [16]}\n")
    done = llmb_here("submit", path, "-d", *options, "--install", cluster("slurm", "h100"))
    assert done.returncode == (1 if options else 2)
    assert f"{path}:1: no workload is called 'microbenchmark_nccl'" in done.stderr
    assert "hint: write: -w microbench_all_reduce  (llmb-run docs microbench)" in done.stderr


def test_variables_that_nothing_reads_are_named(
    cluster: Cluster, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = cluster("slurm", "h100", pass_environment=["NCCL_IB_HCA"])
    shell = {"NCCL_ALGO": "Ring", "NCCL_IB_HCA": "mlx5", "NCCL_DEBUG": "INFO", "TP": "2"}
    for name in ("TP_COMM_OVERLAP", "ENABLE_PYTORCH_PROFILE", "CHECKPOINT_DIR"):
        shell[name] = "1"
    for name, text in shell.items():
        monkeypatch.setenv(name, text)
    words = ("submit", "-w", "nemotron4_15b", "--scale", "16", "-d", "--install", install)
    done = llmb_here(*words, "--env", "NCCL_DEBUG=WARN")
    assert done.returncode == 0
    (nccl,) = (line for line in done.stderr.splitlines() if "jobs do not get" in line)
    assert "NCCL_ALGO" in nccl
    assert "--env NCCL_ALGO=Ring" in nccl
    assert "NCCL_DEBUG" not in nccl
    assert "NCCL_IB_HCA" not in nccl
    (unread,) = (line for line in done.stderr.splitlines() if line.startswith("note: not used"))
    assert all(name in unread for name in ("TP_COMM_OVERLAP", "CHECKPOINT_DIR", "--profile"))
    assert "TP (" not in unread
