# SPDX-License-Identifier: Apache-2.0
"""Plugins that are not installed: packages and modules of LLMB_PLUGINS, and of `plugins check`."""

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.check.scaffold import PROGRAM, YAML, scaffold
from llmb.core.files import write_folder
from llmb_testing.machine import Machine

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Install = Callable[..., str]

SELF = """
from llmb import api
from acme_moon import words

@api.hookimpl
def llmb_clusters():
    return [api.ClusterType(name=words.NAME, create="acme_moon.cluster:create", title="x")]
"""
CLUSTER = """
from acme_moon.words import NAME

class Cluster:
    def __init__(self):
        raise ValueError(f"{NAME} has no nodes")

def create(config):
    return Cluster()
"""


@pytest.fixture
def rows(llmb_run: Command) -> Callable[..., dict[str, dict[str, str]]]:
    """Lists the plugins of folders that are no distributions, by name."""

    def listed(*folders: Path) -> dict[str, dict[str, str]]:
        text = ":".join(map(str, folders))
        done = llmb_run("plugins", "list", "--format", "json", LLMB_PLUGINS=text)
        plugins = {row["plugin"]: row for row in json.loads(done.stdout)}
        return {name: row for name, row in plugins.items() if not name.startswith("llmb-")}

    return listed


def test_a_module_beside_its_own_files(
    rows: Callable[..., dict[str, dict[str, str]]], tmp_path: Path
) -> None:
    files = {Path(path).name: text for path, text in scaffold("disk", PROGRAM).items()}
    folder = tmp_path / "plugins"
    module = files.pop("__init__.py")
    write_folder(
        folder,
        {
            "disk.py": module,
            **{name: files[name] for name in ("workload.yaml", "program.py", "sample_log.txt")},
            "stream.yaml": scaffold("stream", YAML)["benchmark.yaml"],
        },
    )
    plugins = rows(folder)
    assert {name: row["status"] for name, row in plugins.items()} == {
        "file:disk.py": "ok",
        "file:stream.yaml": "ok",
    }
    assert plugins["file:disk.py"]["workload"] == "disk"


@pytest.mark.parametrize("place", ["", "llmb_disk"])
def test_the_folder_of_a_new_plugin(
    place: str, rows: Callable[..., dict[str, dict[str, str]]], llmb_run: Command, tmp_path: Path
) -> None:
    write_folder(tmp_path / "disk", scaffold("disk", PROGRAM))
    folder = tmp_path / "disk" / place
    plugins = rows(folder)
    assert {name: row["workload"] for name, row in plugins.items()} == {"file:llmb_disk": "disk"}
    done = llmb_run("plugins", "check", folder)
    assert (done.returncode, done.stdout) == (0, "1 plugin checked, no faults\n")


@pytest.mark.parametrize("path", ["acme_moon/__init__.py", "acme_moon", ""])
def test_a_package_imports_itself_by_its_name(path: str, llmb_run: Command, tmp_path: Path) -> None:
    package = tmp_path / "made/acme_moon"
    files = {"__init__.py": SELF, "words.py": "NAME = 'moon'\n", "cluster.py": CLUSTER}
    write_folder(package, files)
    done = llmb_run("plugins", "check", package.parent / path)
    assert done.returncode == 1
    assert "file:acme_moon" in done.stderr
    assert f"ValueError: moon has no nodes ({package / 'cluster.py'}:6)" in done.stderr


def test_a_folder_of_benchmarks_has_a_name_for_each(
    rows: Callable[..., dict[str, dict[str, str]]], llmb_run: Command, tmp_path: Path
) -> None:
    for name in ("disk", "tape"):
        write_folder(tmp_path / "made" / name, scaffold(name, YAML))
    done = llmb_run("plugins", "check", tmp_path / "made")
    assert (done.returncode, done.stdout) == (0, "2 plugins checked, no faults\n"), done.stderr
    names = {"file:disk/benchmark.yaml", "file:tape/benchmark.yaml"}
    assert set(rows(tmp_path / "made")) == names
    benchmark = tmp_path / "made/disk/benchmark.yaml"
    benchmark.write_text(benchmark.read_text().replace("key:", "keyy:"))
    for path in (benchmark.parent, tmp_path / "made"):
        assert "plugin file:disk/benchmark.yaml is skipped" in (
            llmb_run("plugins", "check", path).stderr
        )


def test_a_sample_log_that_lacks_what_every_run_must_have_is_a_fault(
    llmb_run: Command, tmp_path: Path
) -> None:
    write_folder(tmp_path / "disk", scaffold("disk", YAML))
    benchmark = tmp_path / "disk/benchmark.yaml"
    benchmark.write_text(benchmark.read_text().replace("best of 5", "beast of 5"))
    done = llmb_run("plugins", "check", benchmark)
    assert done.returncode == 1
    assert "a run with this sample log would fail: its log lacks 'beast of 5'" in done.stderr


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("[print]", "llmb_commands returned <built-in function print>, not a command"),
        ("[click.Command('submit')]", "llmb already has the command 'submit'"),
    ],
)
def test_the_commands_of_a_file_are_checked(
    answer: str, fault: str, llmb_run: Command, tmp_path: Path
) -> None:
    hook = f"@api.hookimpl\ndef llmb_commands():\n    return {answer}\n"
    (tmp_path / "usage.py").write_text(f"import click\nfrom llmb import api\n\n{hook}")
    done = llmb_run("plugins", "check", tmp_path / "usage.py")
    assert done.returncode == 1
    assert f"file:usage.py: {fault}" in done.stderr


def test_the_hint_at_a_bad_sample_log_can_be_pasted(llmb_run: Command, tmp_path: Path) -> None:
    write_folder(tmp_path / "disk", scaffold("disk", PROGRAM))
    folder = tmp_path / "disk/llmb_disk"
    (folder / "sample_log.txt").write_text("nothing\n")
    done = llmb_run("plugins", "check", folder)
    (hint,) = [line for line in done.stderr.splitlines() if line.startswith("hint: llmb-run")]
    words = shlex.split(hint.removeprefix("hint: llmb-run "))
    assert words[:3] == ["plugins", "check", str(folder)]
    again = llmb_run(*words)
    assert again.returncode == 1
    assert "no workload is called" not in again.stderr


HOOKS = """
from pathlib import Path
from llmb import api

@api.hookimpl
def llmb_workload():
    return api.read_workload(Path(__file__).with_name("workload.yaml"))

@api.hookimpl
def llmb_launch(job):
    {launch}
"""
ROWS = """
key: disk
title: Disk
metrics: [{name: speed, unit: GB/s}]
parameters: {mode: {default: read, choices: [read, write]}}
sizes: {small: {rows: [{gpu: [h100], dtype: [bf16], scales: [8, 16]}]}}
"""
LAUNCH = "return api.Command(program=api.Program(shell='true'), args=(str({value}),))"


@pytest.mark.parametrize(
    ("launch", "fault"),
    [
        ("api.Launch", "llmb_launch returned None, not a Launch or a Command ("),
        (LAUNCH.format(value="{8: 1}[job.scale]"), "llmb_launch: KeyError: 16 ("),
        (LAUNCH.format(value="{'read': 1}[job.parameters['mode']]"), "KeyError: 'write' ("),
        (LAUNCH.format(value="job.trained.tp"), "disk trains no model ("),
    ],
)
def test_a_check_launches_each_scale_and_each_choice(
    launch: str, fault: str, llmb_run: Command, tmp_path: Path
) -> None:
    package = tmp_path / "llmb_disk"
    files = {"__init__.py": HOOKS.replace("{launch}", launch), "workload.yaml": ROWS}
    write_folder(package, files)
    done = llmb_run("plugins", "check", package)
    assert done.returncode == 1
    assert fault in done.stderr
    assert f"{package / '__init__.py'}:" in done.stderr
    assert done.stderr.count("error: ") == 1
    good = LAUNCH.format(value="job.parameters['mode']")
    (package / "__init__.py").write_text(HOOKS.replace("{launch}", good))
    assert llmb_run("plugins", "check", package).returncode == 0


@pytest.mark.parametrize("name", ["json", "wave", "llmb", "two words"])
def test_a_package_never_takes_the_name_of_another_module(
    name: str, rows: Callable[..., dict[str, dict[str, str]]], tmp_path: Path
) -> None:
    write_folder(tmp_path / "made" / name, {"__init__.py": SELF})
    row = rows(tmp_path / "made")[f"file:{name}"]
    assert (row["status"], "rename the folder" in row["reason"]) == ("skipped", True)


def test_an_installed_plugin_is_loaded_once(
    rows: Callable[..., dict[str, dict[str, str]]], llmb_run: Command
) -> None:
    """Its folder in LLMB_PLUGINS changes nothing, and it can be checked there too."""
    checkout = Path(__file__).parents[3] / "plugins/llama31"
    row = rows(checkout)["file:llmb_llama31"]
    assert (row["status"], "llmb-llama31:llama31" in row["reason"]) == ("skipped", True)
    listed = llmb_run("list", "-w", "llama3.1", "--format", "json", LLMB_PLUGINS=str(checkout))
    assert json.loads(listed.stdout)
    assert llmb_run("plugins", "check", checkout).returncode == 0


def test_a_folder_without_a_plugin(llmb_run: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = llmb_run("plugins", "check", tmp_path / "empty")
    assert (done.returncode, done.stdout) == (2, "")
    assert str(tmp_path / "empty") in done.stderr


@pytest.mark.parametrize("name", ["moon:entry", "moon", "Moon", "fake_moon", "moon_base"])
def test_a_plugin_is_checked_by_each_of_its_names(
    name: str, install: Install, llmb_run: Command, site_packages: Path
) -> None:
    hook = "from pathlib import Path\nfrom llmb.api import hookimpl, read_workload\n"
    body = "    return read_workload(Path(__file__).with_suffix('.yaml'))\n"
    install("moon", f"{hook}\n@hookimpl\ndef llmb_workload():\n{body}", key="moon_base")
    install("gone", "import no_such_module\n")  # is not checked
    done = llmb_run("plugins", "check", "-w", name, PYTHONPATH=str(site_packages))
    assert (done.returncode, done.stdout) == (0, "1 plugin checked, no faults\n"), done.stderr


def test_a_log_is_read_by_the_name_of_a_distribution(llmb_run: Command, tmp_path: Path) -> None:
    log = tmp_path / "log.out"
    log.write_text("nothing\n")
    done = llmb_run("plugins", "check", "--log", log, "-w", "llmb-llama31")
    assert (done.returncode, done.stdout.splitlines()[0].startswith("pretrain_llama3.1")) == (
        1,
        True,
    )
    done = llmb_run("plugins", "check", "--log", log, "-w", "llmb-runai")  # has no workload
    assert (done.returncode, done.stdout) == (2, "")


def test_the_version_of_a_package_is_the_digest_of_all_its_files(
    llmb_machine: Machine, llmb_run: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "disk"
    write_folder(folder, scaffold("disk", PROGRAM))
    words = ("single", "-w", "disk", "--scale", 1, "--set", "megabytes=64", "--wait")
    versions = []
    for change in ("", "# more\n"):
        with (folder / "llmb_disk/sample_log.txt").open("a") as file:
            file.write(change)
        place = str(llmb_machine.folder)
        done = llmb_run(*words, "--install", place, LLMB_PLUGINS=str(folder))
        assert done.returncode == 0, done.stderr
        results = llmb_run(
            "results", "--install", place, "--format", "json", LLMB_PLUGINS=str(folder)
        )
        (row,) = json.loads(results.stdout)["results"]
        software = row["configuration"]["software"]
        assert software["plugin"] == "file:llmb_disk"
        versions.append(software["plugin_version"])
    assert len(set(versions)) == 2
    assert all(version.startswith("sha256:") for version in versions)


@pytest.mark.parametrize(
    "init",
    [
        "from llmb_moon.hooks import llmb_clusters\n",
        "from llmb_moon.hooks import llmb_clusters as llmb_clusters\n",
        "from .hooks import (  # noqa\n    llmb_clusters,\n)\n",
    ],
)
def test_a_package_whose_hooks_are_in_another_module(
    init: str, rows: Callable[..., dict[str, dict[str, str]]], llmb_run: Command, tmp_path: Path
) -> None:
    hooks = SELF.replace("from acme_moon import words\n", "").replace("words.NAME", "'moon'")
    package = tmp_path / "llmb_moon"
    write_folder(package, {"__init__.py": init, "hooks.py": hooks})
    for folder in (tmp_path, package):
        assert {name: row["cluster_type"] for name, row in rows(folder).items()} == {
            "file:llmb_moon": "moon"
        }
    module = "def create(config):\n    return None\n"
    (package / "cluster.py").write_text(module)
    checked = llmb_run("plugins", "check", package)
    assert "llmb_moon" in checked.stderr  # its cluster type, which has no methods


def test_a_package_that_imports_no_hook_is_no_plugin(
    rows: Callable[..., dict[str, dict[str, str]]], tmp_path: Path
) -> None:
    init = "from acme import llmb_tools, llmb_clusters_of\nraise SystemExit('ran')\n"
    write_folder(tmp_path / "acme_tools", {"__init__.py": init})
    assert rows(tmp_path) == {}


READ = """
from pathlib import Path
from llmb.api import hookimpl, read_workload

@hookimpl
def llmb_workload():
    return read_workload(Path(__file__).with_name("workload.yaml"))
"""
TABLE = """\
key: mm
title: Products
default_size: a
default_dtype: bf16
metrics: [{name: bw, unit: GB/s}]
launch: {program: "true"}
parse: {patterns: {bw: 'bw (?P<value>[0-9.]+)'}}
sizes:
  a:
    whole_nodes: false
    rows: [{gpu: any, dtype: bf16, scales: [1, 2]}]
"""


def test_the_reason_why_a_named_plugin_is_skipped(llmb_run: Command, tmp_path: Path) -> None:
    table = TABLE.replace("default_size: a", "default_size: b")
    write_folder(tmp_path / "mm", {"mm.py": READ, "workload.yaml": table})
    done = llmb_run("plugins", "check", "-w", "mm", LLMB_PLUGINS=str(tmp_path / "mm"))
    assert done.returncode != 0
    assert f"{tmp_path / 'mm/workload.yaml'}:3: default_size: " in done.stderr


@pytest.mark.parametrize("body", ["return [3]", "raise KeyError('x')", "return None"])
def test_causes_of_failures_that_cannot_be_read(
    body: str, llmb_run: Command, tmp_path: Path
) -> None:
    hook = f"\n@hookimpl\ndef llmb_failures():\n    {body}\n"
    write_folder(tmp_path / "mm", {"mm.py": READ, "workload.yaml": TABLE})
    assert llmb_run("plugins", "check", tmp_path / "mm").returncode == 0
    (tmp_path / "mm/mm.py").write_text(READ + hook)
    done = llmb_run("plugins", "check", tmp_path / "mm")
    assert done.returncode == 1
    assert done.stderr.startswith("error: file:mm/mm.py: llmb_failures")
    assert done.stderr.count("llmb_failures ") <= 1


def test_a_row_for_any_type_that_does_not_fill_a_node(llmb_run: Command, tmp_path: Path) -> None:
    table = TABLE.replace("    whole_nodes: false\n", "")
    write_folder(tmp_path / "mm", {"mm.py": READ, "workload.yaml": table})
    done = llmb_run("plugins", "check", tmp_path / "mm")
    assert done.returncode == 1
    assert f"{tmp_path / 'mm/workload.yaml'}:10: sizes.a.rows.0: " in done.stderr
    assert "h100" in done.stderr
    assert "whole_nodes: false" in done.stderr


SETUP = """
@hookimpl
def llmb_setup():
    from llmb.api import Image, Needs
    return Needs(needs=(Image(reference="REFERENCE"),))
"""


@pytest.mark.parametrize(
    ("reference", "valid"),
    [
        ("Foo/Bar:1", False),
        ("has space:1", False),
        ("nvcr.io/Nvidia/nemo:1", False),
        ("nvcr.io/nvidia/nemo:24.12.Rc1", True),
        ("Registry.example.com:5000/team/x@sha256:" + 64 * "0", True),
        ("docker://nvcr.io#nvidia/nemo:1", True),
        ("ubuntu", True),
    ],
)
def test_references_to_images_are_those_that_registries_have(
    reference: str, valid: bool, llmb_run: Command, tmp_path: Path
) -> None:
    code = READ + SETUP.replace("REFERENCE", reference)
    write_folder(tmp_path / "mm", {"mm.py": code, "workload.yaml": TABLE})
    done = llmb_run("plugins", "check", tmp_path / "mm")
    assert done.returncode == (0 if valid else 1), done.stderr
    assert valid or f"{tmp_path / 'mm/mm.py'}:" in done.stderr
    if not valid:
        table = f"{TABLE}image: '{reference}'\n"
        write_folder(tmp_path / "m2", {"m2.py": READ, "workload.yaml": table})
        done = llmb_run("plugins", "check", tmp_path / "m2")
        assert f"{tmp_path / 'm2/workload.yaml'}:12: image: " in done.stderr


def test_a_copy_of_an_installed_package_has_the_command_that_checks_it(
    install: Install, llmb_run: Command, site_packages: Path, tmp_path: Path
) -> None:
    install("moon", READ, key=None)
    (site_packages / "fake_moon.py").unlink()
    package = {"__init__.py": READ, "workload.yaml": TABLE}
    write_folder(site_packages / "fake_moon", package)
    write_folder(tmp_path / "copy/fake_moon", package)
    done = llmb_run("plugins", "check", tmp_path / "copy", PYTHONPATH=str(site_packages))
    assert done.returncode == 1
    assert "llmb-run plugins check -w fake_moon" in done.stderr
    checked = llmb_run("plugins", "check", "-w", "fake_moon", PYTHONPATH=str(site_packages))
    assert checked.returncode == 0, checked.stderr
