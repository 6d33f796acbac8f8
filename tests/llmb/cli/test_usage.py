# SPDX-License-Identifier: Apache-2.0
"""Tests of how llmb-run is used: exit codes, nearest words, listings in every format, and what a
start imports.
"""

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from llmb import __version__
from llmb.cli import app
from llmb.cli.commands import TAKE_INSTALL
from llmb.cli.context import CliContext, pass_context, with_install
from llmb.cli.usage import as_error
from llmb.errors import LlmbError, describe

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]
Wording = Callable[..., None]

BROKEN = "from llmb.api import hookimpl\n@hookimpl\ndef llmb_lunch(): ...\n"


@pytest.fixture
def broken_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed distribution that misspells a hook; its source."""
    folder = tmp_path / "site-packages"
    info = folder / "stranger-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "stranger.py").write_text(BROKEN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[llmb]\nplugin = stranger\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "stranger:plugin"


def test_the_real_command_knows_its_version(llmb_run: Command) -> None:
    done = llmb_run("--version")
    assert (done.returncode, done.stdout) == (0, f"llmb-run, version {__version__}\n")


def test_help_is_no_error_and_names_every_command(llmb_here: Command) -> None:
    done = llmb_here("--help")
    assert done.returncode == 0
    for name in (
        "list",
        "submit",
        "submit-all",
        "jobs",
        "results",
        "parse",
        "plugins",
        "config",
    ):
        assert re.search(rf"^ +{name} ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("name", ["submit", "submit-all", "single", "bulk"])
def test_help_has_what_a_first_night_needs_and_help_all_the_rest(
    name: str, llmb_here: Command
) -> None:
    first, every = (llmb_here(name, word).stdout for word in ("--help", "--help-all"))
    options = re.compile(r"^  (?:-\w, )?(--[\w-]+)", re.MULTILINE)
    shown, all_shown = (set(options.findall(text)) for text in (first, every))
    assert {"--dry-run", "--wait", "--scale", "--dtype", "--help-all"} <= shown < all_shown
    assert len(shown) <= 22
    assert {"--nccl-trace", "--segment", "--format"} <= all_shown - shown
    titles = re.findall(r"^(\w[\w ]+):$", every, re.MULTILINE)
    assert titles == ["Which jobs", "Training", "Profiling", "Scheduler", "Output", "Help"]
    assert not {"--file", "--no-preflight"} & all_shown


def test_earlier_words_work_and_are_not_listed(llmb_here: Command) -> None:
    listed = llmb_here("--help").stdout
    for name in ("single", "bulk"):
        assert not re.search(rf"^ +{name} ", listed, re.MULTILINE)
        assert llmb_here(name, "--help").returncode == 0
    assert llmb_here("jobs", "list", "--help").returncode == 0
    assert not re.search(r"^ +list ", llmb_here("jobs", "--help").stdout, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(app.build(app.load()).commands))
def test_every_command_explains_itself(name: str, llmb_here: Command) -> None:
    done = llmb_here(name, "--help")
    assert done.returncode == 0
    assert done.stdout.split()[1:3] == ["llmb-run", name]


def test_no_summary_of_a_command_is_cut(
    llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    groups: list[tuple[tuple[str, ...], click.Group]] = [((), app.build(app.load()))]
    for path, group in groups:
        page = " ".join(llmb_here(*path, "--help").stdout.split())
        for name in group.commands:
            command = group.get_command(click.Context(group), name)
            assert command is not None
            if command.hidden:
                continue
            assert " ".join(f"{name} {command.get_short_help_str(1000)}".split()) in page
            groups += [((*path, name), command)] if isinstance(command, click.Group) else []
    assert len(groups) > 3


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), ""),
        (("lst",), "command-unknown"),
        (("submitall",), "command-unknown"),
        (("jobs", "cancle"), "command-unknown"),
        (("--format", "json", "list"), "option-unknown"),
        (("list", "--fromat", "json"), "option-unknown"),
        (("list", "--format", "jsn"), "value-not-allowed"),
        (("list", "--format", "xml"), "value-not-allowed"),
        (("list", "--published=x"), "option-usage"),
        (("list", "more"), "usage"),
        (("list", "-w", "nemotorn4"), "workload-unknown"),
        (("single",), "argument-missing"),
        (("single", "-w", "nemotron4", "--scale", "0"), "value-not-allowed"),
        (("single", "-w", "nemotron4", "--scale", "x"), "value-not-allowed"),
        (("bulk",), "argument-missing"),
        (("submit-all", "--max-scale"), "option-usage"),
        (("submit-all", "--scale", "8,x"), "value-not-allowed"),
        (("submit-all", "--scale", "²"), "value-not-allowed"),
        (("submit-all", "--repeats", "0"), "value-not-allowed"),
        (("single", "-w", "nemotron4", "--scale", "8", "--set", "ep=4", "etp=1"), "usage"),
        (("single", "-w", "nemotron4", "--scale", "8", "--set", "ep=4 etp=1"), "param-invalid"),
    ],
)
def test_wrong_usage_ends_2_with_the_fix(
    arguments: tuple[str, ...],
    code: str,
    cluster: Cluster,
    llmb_here: Command,
    monkeypatch: pytest.MonkeyPatch,
    wording: Wording,
) -> None:
    codes: list[str] = []

    def spy(error: LlmbError) -> str:
        codes.append(error.code)
        return describe(error)

    monkeypatch.setattr(app, "describe", spy)
    monkeypatch.setenv("LLMB_INSTALL", str(cluster()))
    done = llmb_here(*arguments)
    assert (done.returncode, done.stdout, "".join(codes)) == (2, "", code)
    if code:
        wording("llmb-run", done.stderr)


@pytest.mark.parametrize("arguments", [("submit-all", "gone.txt"), ("bulk", "gone.yaml")])
def test_a_missing_list_ends_2_and_is_named(
    arguments: tuple[str, ...],
    cluster: Cluster,
    llmb_here: Command,
    wording: Wording,
) -> None:
    done = llmb_here(*arguments, "--install", cluster())
    assert (done.returncode, done.stdout) == (2, "")
    wording(arguments[0], done.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit-all",),
        ("submit-all", "--dtype", "fp8", "--repeats", "2"),
        ("single", "-w", "nemotron4"),
    ],
)
def test_a_submission_needs_a_list_or_a_scale(
    arguments: tuple[str, ...],
    cluster: Cluster,
    llmb_here: Command,
    wording: Wording,
) -> None:
    done = llmb_here(*arguments, "--install", cluster())
    assert (done.returncode, done.stdout) == (2, "")
    wording(arguments[0], done.stderr)


@pytest.mark.parametrize("arguments", [("verfy",), ("--set",), ("add", "--yes"), ("--config", ".")])
def test_the_installer_reports_wrong_usage_the_same_way(
    arguments: tuple[str, ...], tmp_path: Path, wording: Wording
) -> None:
    tool = str(Path(sys.executable).with_name("llmb-install"))
    done = subprocess.run(
        [tool, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    wording("llmb-install", done.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ("archive", "no-such-run"),
        ("baseline", "shw"),
        ("completion", "fsh"),
        ("docs", "resluts"),
        ("plugins", "list", "--format", "jsn"),
        ("plugins", "check", "-w", "no-such-plugin"),
    ],
)
def test_messages_of_small_commands(
    arguments: tuple[str, ...],
    cluster: Cluster,
    llmb_here: Command,
    wording: Wording,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = cluster()
    monkeypatch.setenv("LLMB_INSTALL", str(folder))
    done = llmb_here(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    name = " ".join(arguments[:2]) if arguments[0] == "plugins" else arguments[0]
    wording(name, done.stderr, {str(folder): "<install>"})


def test_the_message_of_the_installers_completion(tmp_path: Path, wording: Wording) -> None:
    tool = str(Path(sys.executable).with_name("llmb-install"))
    done = subprocess.run(
        [tool, "completion", "fsh"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    wording("llmb-install completion", done.stderr)


@pytest.mark.parametrize(
    ("arguments", "lacks_value"),
    [
        (("--many",), True),
        (("--many=1", "--many"), True),
        (("-m",), True),
        (("--flag=1",), False),
        (("--flag=1", "--many", "2"), False),
    ],
)
def test_whether_an_option_lacks_a_value_is_read_from_the_arguments(
    arguments: tuple[str, ...], lacks_value: bool
) -> None:
    """Of the real click, and without its sentences: one class and one field are both errors."""
    options = [
        click.Option(["-m", "--many"], multiple=True),
        click.Option(["--flag"], is_flag=True),
    ]
    with pytest.raises(click.BadOptionUsage) as caught:
        click.Command("x", params=list[click.Parameter](options)).main(
            [*arguments], standalone_mode=False
        )
    vars(caught.value)["message"] = ""
    error = as_error(caught.value, arguments)
    name = caught.value.option_name
    assert (error.code, error.key) == ("option-usage", name)
    assert (error.hint or "").split("  ")[0] == (
        f"{name} VALUE" if lacks_value else f"{name} alone"
    )


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (("results", "--format", "html"), "llmb-run report -o report.html"),
        (("jobs", "--format=junit"), "llmb-run results --format junit"),
    ],
)
def test_a_format_that_another_command_writes_is_answered_with_it(
    arguments: tuple[str, ...], command: str, llmb_here: Command
) -> None:
    done = llmb_here(*arguments)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"hint: write: {command}"


@pytest.mark.parametrize("name", ["doctor", "verify", "uninstall"])
def test_a_command_of_the_installer_is_named(name: str, llmb_here: Command) -> None:
    done = llmb_here(name, "--json")
    assert done.returncode == 2
    assert f"hint: write: llmb-install {name} --json\n" in done.stderr


@pytest.mark.parametrize("words", [(), ("submit",), ("jobs",), ("jobs", "show")])
def test_help_is_a_command_too(words: tuple[str, ...], llmb_here: Command) -> None:
    asked, usual = llmb_here("help", *words), llmb_here(*words, "--help")
    assert (asked.returncode, asked.stdout) == (0, usual.stdout)
    assert asked.stdout.startswith(" ".join(("Usage: llmb-run", *words)))


@pytest.mark.parametrize(
    ("arguments", "message", "command"),
    [
        (("submit-all", "-f"), "-f (--file)", "llmb-run submit-all JOBLIST"),
        (("submit", "-d", "-f"), "-f (--file)", "llmb-run submit -d JOBLIST"),
        (("jobs", "logs", "ab", "-n"), "-n (--lines)", "llmb-run jobs logs ab --lines N"),
        (("submit", "--max-scale"), "--max-scale", "llmb-run submit --max-scale N"),
    ],
)
def test_an_option_without_a_value_is_answered_with_the_command_to_type(
    arguments: tuple[str, ...], message: str, command: str, llmb_here: Command
) -> None:
    done = llmb_here(*arguments)
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert error == f"error: {message} needs a value"
    assert hint.startswith(f"hint: {command}; more: llmb-run ")


def test_click_errors_of_plugins_are_printed_like_ours() -> None:
    assert describe(as_error(click.ClickException("Disk full."))) == "error: disk full"
    assert as_error(click.ClickException("x")).exit_code == 1
    assert describe(as_error(click.UsageError("NaN given"))) == "error: NaN given"


def test_without_an_install_directory_the_hint_has_the_options(
    llmb_run: Command, tmp_path: Path, wording: Wording
) -> None:
    done = llmb_run("single", "-w", "nemotron4", "--scale", 16, "-d", cwd=tmp_path)
    assert done.returncode == 2
    wording("config", done.stderr)


def test_stage_path_is_refused_with_its_successor(
    llmb_run: Command, cluster: Cluster, wording: Wording
) -> None:
    done = llmb_run("config", cwd=cluster(), STAGE_PATH="/old")
    assert done.returncode == 2
    wording("config", done.stderr)


def test_list_warns_of_a_missing_install_directory(llmb_run: Command, wording: Wording) -> None:
    done = llmb_run("list", LLMB_INSTALL="/nope")
    assert done.returncode == 0
    wording("list", done.stderr)


def test_list_of_one_size(llmb_here: Command) -> None:
    rows = json.loads(llmb_here("list", "-w", "nemotron4-340B", "--format", "json").stdout)
    assert {row["size"] for row in rows} == {"340b"}
    assert {tuple(row["gpu"]): row["memory_gb"] for row in rows}["gb200",] == 180


def test_list_takes_an_install_directory_that_is_there(
    llmb_here: Command,
    cluster: Cluster,
    tmp_path: Path,
    wording: Wording,
) -> None:
    assert llmb_here("list", "--install", cluster()).returncode == 0
    done = llmb_here("list", "--install", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    wording("list", done.stderr)


def test_list_names_a_configuration_that_cannot_be_used(
    llmb_here: Command, cluster: Cluster, wording: Wording
) -> None:
    """The table is shown all the same, without the columns about this cluster."""
    done = llmb_here("list", "--install", cluster(schema_version=3, future={"a": 1}))
    assert done.returncode == 0
    assert "pretrain_nemotron4" in done.stdout
    wording("list", done.stderr)


def test_list_marks_installed_workloads(
    llmb_here: Command, cluster: Cluster, wording: Wording
) -> None:
    place = cluster(workloads={"installed": ["Nemotron-4", "pretrain_gone"]})
    rows = json.loads((done := llmb_here("list", "--format", "json", "--install", place)).stdout)
    assert {row["workload"] for row in rows if row["installed"]} == {"pretrain_nemotron4"}
    assert {row["installed"] for row in rows} == {True, False}
    assert "pretrain_gone" in done.stderr
    lines = llmb_here("list", "--install", place).stdout.splitlines()
    assert lines[0].split()[-2:] == ["Runs", "here"]
    assert {line.split()[0] for line in lines[2:] if " no: not " not in line} == {
        "pretrain_nemotron4"
    }
    done = llmb_here("list", "-w", "nemotronh", "--install", place)
    wording("list", done.stderr)
    assert (
        "not installed" not in llmb_here("list", "-w", "nemotron4_15b", "--install", place).stderr
    )


def test_list_needs_no_valid_configuration(
    llmb_here: Command, cluster: Cluster, wording: Wording
) -> None:
    place = cluster(no_such_key=1)
    done = llmb_here("list", "--format", "json", "--install", place)
    assert {row["installed"] for row in json.loads(done.stdout)} == {False}
    (place / "cluster_config.yaml").write_text("a: [")
    done = llmb_here("list", "--format", "json", "--install", place)
    assert done.returncode == 0
    assert "installed" not in json.loads(done.stdout)[0]
    wording("list", done.stderr)


def test_list_reads_no_more_of_a_cluster_than_it_shows(cluster: Cluster) -> None:
    """It reads the configuration, to say which sizes cannot run there, and asks no cluster."""
    modules, _ = trace("list", "--install", str(cluster()))
    assert (
        modules & {"llmb.builtin.slurm.commands", "llmb.builtin.slurm.slurm_cluster", "httpx"}
        == set()
    )


def test_scales_that_some_lack_say_how_to_take_the_others(
    llmb_here: Command,
    cluster: Cluster,
    wording: Wording,
) -> None:
    done = llmb_here("submit-all", "--scale", "128", "--install", cluster())
    assert done.returncode == 2
    wording("submit-all", done.stderr)
    done = llmb_here(
        "submit-all", "--scale", "128", "--dry-run", "--keep-going", "--install", cluster(name="i2")
    )
    assert (done.returncode, done.stdout.count(" 340b ")) == (1, 2)


def test_published_figures_of_one_size(llmb_run: Command) -> None:
    done = llmb_run("list", "--published", "-w", "llama3.1_8b", "--format", "json")
    assert {row["model_size"] for row in json.loads(done.stdout)} == {"8b"}
    assert done.stderr == f"{len(json.loads(done.stdout))} published figures\n"
    assert not json.loads(
        llmb_run("list", "--published", "-w", "llama3.1_tiny", "--format", "json").stdout
    )


def test_published_figures_are_as_printed(llmb_run: Command) -> None:
    figures = json.loads(llmb_run("list", "--published", "--format", "json").stdout)
    assert figures
    assert all(len(repr(one["mfu"])) < 10 for one in figures if one["mfu"] is not None)


def test_the_install_directory_is_found_above_this_folder(
    llmb_run: Command, cluster: Cluster
) -> None:
    deep = cluster() / "workloads" / "deep"
    deep.mkdir(parents=True)
    done = llmb_run("config", cwd=deep)
    assert done.returncode == 0
    assert "gpu_type: h100\n" in done.stdout


def test_a_fault_of_the_configuration_ends_2_with_line_and_nearest_key(
    cluster: Cluster, llmb_here: Command, wording: Wording
) -> None:
    install = cluster(slurm={"gpu": {"partitoin": "batch"}})
    done = llmb_here("config", "--install", install)
    assert done.returncode == 2
    wording("cluster_config.yaml", done.stderr)


def test_a_submission_to_an_unknown_cluster_type_writes_nothing(
    cluster: Cluster, llmb_here: Command, wording: Wording
) -> None:
    install = cluster("moon")
    (install / "cluster_config.yaml").write_text("cluster_type: moon\ngpu_type: h100\n")
    done = llmb_here("single", "-w", "nemotron4", "--scale", 16, "--install", install)
    assert done.returncode == 2
    wording("cluster_config.yaml", done.stderr)
    assert [path.name for path in install.iterdir()] == ["cluster_config.yaml"]


def test_config_shows_the_configuration_in_effect(
    cluster: Cluster, llmb_here: Command, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "debug")
    done = llmb_here(
        "config", "--install", cluster(slurm={"account": "team", "gpu": {"partition": "batch"}})
    )
    assert done.returncode == 0
    assert "partition: debug" in done.stdout
    assert "batch" not in done.stdout
    wording("config", done.stderr)


ROWS = {
    "pretrain_llama3.1": {"8b", "70b", "405b", "405b-proxy", "tiny"},
    "pretrain_nemotron4": {"15b", "340b", "tiny"},
    "pretrain_nemotronh": {"56b", "tiny"},
}


def test_list_in_every_format(llmb_here: Command) -> None:
    wanted = {(key, size) for key, sizes in ROWS.items() for size in sizes}
    from_json = json.loads(llmb_here("list", "--format", "json").stdout)
    assert {(row["workload"], row["size"]) for row in from_json} >= wanted
    assert list(from_json[0]) == [
        "workload",
        "size",
        "gpu_types",
        "dtypes",
        "scales",
        "metrics",
        "parameters",
    ]
    by_size = {(row["workload"], row["size"]): row for row in from_json}
    assert by_size["pretrain_nemotronh", "56b"] == {
        "workload": "pretrain_nemotronh",
        "size": "56b",
        # the last two with Megatron-Bridge
        "gpu_types": ["h100", "b200", "gb200", "gb300", "b300"],
        "dtypes": ["fp8", "fp8_cs"],
        "scales": [32, 64, 128, 256, 512, 1024, 2048],
        "metrics": [],  # its own, besides those of training
        "parameters": {},
    }
    from_csv = list(csv.DictReader(io.StringIO(llmb_here("list", "--format", "csv").stdout)))
    assert [(row["workload"], row["size"]) for row in from_csv] == list(by_size)
    assert ("h100, b200, gb200, gb300, b300", "32..2048") in [
        (row["gpu_types"], row["scales"]) for row in from_csv
    ]
    for fmt in ("table", "md"):
        lines = [
            line.replace("|", " ").split()
            for line in llmb_here("list", "--format", fmt).stdout.splitlines()
        ]
        assert {tuple(line[:2]) for line in lines} >= wanted


@pytest.mark.parametrize("name", ["pretrain_nemotron4", "nemotron-4", "Nemotron4"])
def test_list_of_one_workload_in_every_format(name: str, llmb_here: Command) -> None:
    rows = json.loads(llmb_here("list", "-w", name, "--format", "json").stdout)
    assert rows[0] == {
        "size": "15b",
        "framework": "nemo",
        "release": None,
        "gpu": ["h100"],
        "dtype": ["fp8", "bf16"],
        "scales": [16, 32, 64, 128, 256, 512, 1024, 2048],
        "layers": 32,
        "tp": 2,
        "pp": 1,
        "cp": 1,
        "vp": None,
        "ep": 1,
        "etp": None,
        "mbs": 2,
        "gbs": "4N",
        "dp": "N/2",
        "ga": [4] * 8,
        "scaling": "weak",
        "memory_gb": 80,
        "cuda_graphs": False,
        "userbuffers": {},
        "time_limit_minutes": None,
        "releases": {"25.05": [16], "25.04": [32, 64, 128, 256, 512, 1024, 2048]},
        "metrics": [],
        "parameters": {},
    }
    assert {row["scaling"] for row in rows} == {"weak", "strong"}
    from_csv = list(
        csv.DictReader(io.StringIO(llmb_here("list", "-w", name, "--format", "csv").stdout))
    )
    assert [row["gbs"] for row in from_csv] == [row["gbs"] for row in rows]
    assert (from_csv[0]["dtype"], from_csv[0]["scales"]) == ("fp8, bf16", "16..2048")
    table = llmb_here("list", "-w", name).stdout.splitlines()
    assert table[2].split() == [
        "15b",
        "h100",
        "fp8,",
        "bf16",
        "16..2048",
        "32",
        "2",
        "1",
        "1",
        "2",
        "4N",
        "N/2",
        "4",
        "weak",
        "80",
    ]
    assert "| 15b" in llmb_here("list", "-w", name, "--format", "md").stdout


@pytest.mark.parametrize("command", [("plugins",), ("plugins", "list")])
def test_plugins_in_every_format(command: tuple[str, ...], llmb_here: Command) -> None:
    rows = json.loads(llmb_here(*command, "--format", "json").stdout)
    ours = next(row for row in rows if row["plugin"] == "llmb-nemotron4:nemotron4")
    assert (ours["status"], ours["workload"], ours["contract"]) == (
        "ok",
        "pretrain_nemotron4",
        "1.0",
    )
    assert ours["reason"] == ""
    assert list(csv.DictReader(io.StringIO(llmb_here(*command, "--format", "csv").stdout))) == rows
    for fmt in ("table", "md"):
        assert "llmb-nemotron4:nemotron4" in llmb_here(*command, "--format", fmt).stdout


def test_our_plugins_pass_the_check(llmb_here: Command) -> None:
    done = llmb_here("plugins", "check")
    assert done.returncode == 0
    assert re.fullmatch(r"\d+ plugins checked, no faults\n", done.stdout)


def test_a_broken_plugin_is_reported_everywhere_and_the_others_work(
    broken_plugin: str, llmb_run: Command, wording: Wording
) -> None:
    checked = llmb_run("plugins", "check")
    assert checked.returncode == 1
    wording("plugins check", checked.stderr)
    assert llmb_run("plugins", "check", "-w", broken_plugin).returncode == 1
    alone = llmb_run("plugins", "check", "-w", "nemotron4")
    assert (alone.returncode, broken_plugin in alone.stderr) == (0, False)
    assert alone.stdout.startswith("1 plugin ")
    rows = json.loads(llmb_run("plugins", "--format", "json").stdout)
    (row,) = [row for row in rows if row["status"] != "ok"]
    assert row["plugin"] == broken_plugin
    assert row["status"] == "skipped"
    assert "'llmb_launch'" in row["reason"]
    listed = llmb_run("list", "--format", "json")
    assert listed.returncode == 0
    assert {row["workload"] for row in json.loads(listed.stdout)} >= set(ROWS)
    assert listed.stderr.count("stranger:plugin") == 1
    assert llmb_run("--help").returncode == 0


def test_interrupted_ends_130(llmb_here: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "build", lambda plugins: click.Command("llmb-run", callback=interrupt))
    done = llmb_here()
    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")


@pytest.mark.parametrize("end", [KeyboardInterrupt(), click.exceptions.Exit(130)])
def test_ctrl_c_in_a_command_that_another_one_runs_ends_both(
    llmb_here: Command, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    @click.group()
    def group() -> None: ...

    @group.command
    def waits() -> None:
        raise end

    @group.command
    @pass_context
    def outer(context: CliContext) -> int:
        context.call(["waits"])
        return 3  # as if nothing had happened

    monkeypatch.setattr(app, "build", lambda plugins: group)
    done = llmb_here("outer")
    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")


@pytest.mark.parametrize("shown", [False, True])
def test_the_output_of_a_called_command_is_returned_or_printed(
    llmb_here: Command, monkeypatch: pytest.MonkeyPatch, shown: bool
) -> None:
    @click.group()
    def group() -> None: ...

    @group.command
    def inner() -> None:
        click.echo("a table")

    @group.command
    @pass_context
    def outer(context: CliContext) -> None:
        answer = context.call(["inner"], shown=shown)
        click.echo(f"outer has {answer}")

    monkeypatch.setattr(app, "build", lambda plugins: group)
    lines = llmb_here("outer").stdout.splitlines()
    assert lines == (["a table", "outer has (0, '')"] if shown else ["outer has (0, 'a table\\n')"])


def test_a_bug_keeps_its_traceback(llmb_here: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(app, "build", lambda plugins: click.Command("llmb-run", callback=fail))
    with pytest.raises(RuntimeError, match="a bug"):
        llmb_here()


def test_a_reader_that_goes_away_is_no_error(cluster: Cluster) -> None:
    code = "import sys; from llmb.cli import app; sys.exit(app.run(sys.argv[1:]))"
    words = [
        "submit-all",
        "--max-scale",
        "2048",
        "--install",
        str(cluster()),
        "-d",
        "--format",
        "json",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors


# Prints the modules that a command line imports and the files of data that it opens.
TRACE = """
import json, sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from llmb.cli import app
try:
    app.run(json.loads(sys.argv[1]))
finally:
    sys.stderr.write(json.dumps([sorted(sys.modules), opened]))
"""

HEAVY = {
    "rich",
    "torch",
    "transformers",
    "nemo",
    "nemo_run",
    "urllib.request",
    "http.client",
    "ssl",
    "asyncio",
    "psutil",
    "questionary",
    "difflib",
    "statistics",
    "multiprocessing",
    "unittest",
    "llmb_workloads",
    "llmb_installer",
}


def trace(*arguments: str) -> tuple[set[str], list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", TRACE, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    modules, opened = json.loads(done.stderr[done.stderr.index("[[") :])
    return set(modules), opened


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("submit-all", "--help"), ("list", "--help")]
)
def test_help_imports_nothing_heavy_and_reads_no_workload(arguments: tuple[str, ...]) -> None:
    modules, opened = trace(*arguments)
    assert modules & HEAVY == set()
    assert [path for path in opened if path.endswith((".yaml", ".yml"))] == []


def test_a_dry_run_imports_no_network_and_no_framework(cluster: Cluster) -> None:
    words = (
        "single",
        "-w",
        "nemotron4",
        "--scale",
        "16",
        "--install",
        str(cluster()),
        "-d",
        "--format",
        "json",
    )
    modules, opened = trace(*words)
    assert modules & (HEAVY - {"psutil", "difflib", "statistics"}) == set()
    assert [path for path in opened if path.endswith("workload.yaml")] != []


def test_commands_in_messages_repeat_the_install_directory() -> None:
    group = app.build(app.load())
    install = Path("/my llmb")
    for text, expected in (
        (
            "llmb-run jobs wait a1; llmb-run results",
            "llmb-run jobs wait {} a1; llmb-run results {}",
        ),
        ("llmb-run list -w x shows it", "llmb-run list {} -w x shows it"),
        ("llmb-run single or submit-all", "llmb-run single {} or submit-all"),
        ("llmb-run jobs wait --install /i", "llmb-run jobs wait --install /i"),
        ("llmb-run --version", "llmb-run --version"),
    ):
        assert with_install(text, group, install) == expected.replace("{}", "--install '/my llmb'")
        assert with_install(text, group, None) == text


def test_commands_known_to_take_an_install_directory_take_it() -> None:
    for words in TAKE_INSTALL:
        command: click.Command = app.build(app.load())
        for word in words:
            assert isinstance(command, click.Group)
            found = command.get_command(click.Context(command), word)
            assert found is not None
            command = found
        assert [option for option in command.params if "--install" in option.opts], words


@pytest.mark.parametrize("words", [["jobs", "list"], ["list"], ["list", "--published"]])
def test_a_named_install_directory_needs_no_current_folder(
    words: list[str],
    cluster: Callable[..., Path],
    llmb_here: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install = cluster("local", "cpu")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = llmb_here(*words, "--install", install)
    assert done.returncode == 0, done.stderr
    assert "current folder" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["results", "--baseline", "april"], "llmb-run compare --baseline NAME"),
        (["--help-all"], "llmb-run COMMAND --help-all, as llmb-run submit --help-all"),
    ],
)
def test_an_option_of_another_command_gets_that_command(
    arguments: list[str], command: str, llmb_here: Command
) -> None:
    done = llmb_here(*arguments)
    assert done.returncode == 2
    assert done.stderr.splitlines()[1:] == [f"hint: write: {command}"]


@pytest.mark.parametrize(
    ("words", "is_of_force"),
    [
        (("jobs", "retry", "-f"), True),
        (("jobs", "cancel", "-f"), False),
        (("submit", "--worklod"), False),
    ],
)
def test_a_short_form_of_force_is_named_where_that_is_an_option(
    words: tuple[str, ...], is_of_force: bool, llmb_here: Command
) -> None:
    done = llmb_here(*words)
    assert done.returncode == 2
    assert ("--force lifts checks" in done.stderr) == is_of_force


@pytest.mark.parametrize("command", ["results", "submit", "jobs"])
def test_a_format_without_format_gets_that_option(command: str, llmb_here: Command) -> None:
    done = llmb_here(command, "--json")
    assert done.returncode == 2
    assert done.stderr.splitlines()[1].startswith("hint: write: --format json; ")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["logs"], "jobs logs RUN"),
        (["logs", "p1", "-n", "20"], "jobs logs p1 -n 20"),
        (["status"], "jobs"),
        (["status", "p1"], "jobs show p1"),
        (["history"], "report --history"),
        (["history", "-o", "nights.html"], "report --history -o nights.html"),
        (["cancel"], "jobs cancel RUN"),
        (["-v", "cancel", "--all"], "-v jobs cancel --all"),
        (["stop"], "jobs cancel RUN"),
        (["cancel", "all"], "jobs cancel --all"),
        (["logs", "all"], "jobs logs all"),
        (["squeue"], "jobs"),
        (["squeue", "-u", "bob"], "jobs"),
        (["scancel", "4711"], "jobs cancel RUN"),
        (["sinfo"], "nodes check"),
        (["retry", "p1"], "jobs retry p1"),
        (["watch"], "jobs wait"),
        (["run", "-w", "llama3.1"], "submit -w llama3.1"),
        (["show"], "results"),
        (["show", "p1"], "explain p1"),
    ],
)
def test_a_command_without_its_group_gets_the_command_to_type(
    arguments: list[str], command: str, llmb_here: Command
) -> None:
    done = llmb_here(*arguments)
    name = next(word for word in arguments if not word.startswith("-"))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: llmb-run has no command '{name}'",
        f"hint: write: llmb-run {command}",
    ]


@pytest.mark.parametrize(
    ("arguments", "message", "command"),
    [
        (["install"], "llmb-run has no command 'install'", "llmb-install"),
        (["jobs", "stop", "p1"], "llmb-run jobs has no command 'stop'", "llmb-run jobs cancel p1"),
        (
            ["jobs", "stop", "all"],
            "llmb-run jobs has no command 'stop'",
            "llmb-run jobs cancel --all",
        ),
        (
            ["-v", "jobs", "follow"],
            "llmb-run jobs has no command 'follow'",
            "llmb-run -v jobs wait",
        ),
        (
            ["report", "--html", "x"],
            "llmb-run report has no option '--html'",
            "llmb-run report -o FILE.html",
        ),
    ],
)
def test_a_command_of_another_name_gets_the_command_to_type(
    arguments: list[str], message: str, command: str, llmb_here: Command
) -> None:
    done = llmb_here(*arguments)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"error: {message}", f"hint: write: {command}"]


def test_a_command_of_one_group_is_not_guessed_in_another(llmb_here: Command) -> None:
    done = llmb_here("nodes", "logs")
    assert done.returncode == 2
    assert "jobs logs" not in done.stderr
