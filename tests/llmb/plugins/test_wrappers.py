# SPDX-License-Identifier: Apache-2.0
"""Tests of wrappers: llmb's answer plus one thing, for one workload or for a cluster; and of
plugins' settings.
"""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.cli import app
from llmb.contract import record
from llmb.contract.launch import Site
from llmb.contract.schema import ClusterConfig
from llmb.core import yamlfile
from llmb.errors import InputFaults
from llmb.plan.plan import make_plan
from llmb_installer.answers.read import read_answers
from llmb_installer.answers.schema import to_yaml
from llmb_installer.cluster_types import all_types
from llmb_installer.detect.site import make_site
from llmb_installer.gather import read_layers
from llmb_installer.planning.config import compose_own_part
from llmb_installer.planning.plan import load_offered
from llmb_testing.entries import job_entry

Install = Callable[..., str]
Command = Callable[..., subprocess.CompletedProcess[str]]
Cluster = Callable[..., Path]
EXAMPLES = Path(__file__).parents[3] / "examples/site-plugins"
FABRIC = "file:fabric.py"
PLANNED = ("single", "-s", "tiny", "--scale", "1", "--dry-run")


@pytest.fixture
def fabric(monkeypatch: pytest.MonkeyPatch) -> str:
    """The example of a plugin for a whole cluster, in LLMB_PLUGINS; its source."""
    monkeypatch.setenv("LLMB_PLUGINS", str(EXAMPLES))
    return FABRIC


def jobs_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)["jobs"]
    return found


OWN = """
from dataclasses import replace
from pathlib import Path
from llmb.api import hookimpl, read_workload

@hookimpl
def llmb_workload():
    return read_workload(Path(__file__).with_name("{module}.yaml"))

@hookimpl(wrapper=True)
def llmb_launch(job):
    launch = yield
    return replace(launch, environment={{**launch.environment, "OWN": job.dtype}})
"""


def test_a_wrapper_adds_to_llmbs_launch_of_its_own_workload(
    install: Install, llmb_here: Command, cluster: Cluster
) -> None:
    install("own", OWN, key="pretrain_own")
    folder = cluster("local", "cpu")
    (job,) = jobs_of(llmb_here(*PLANNED, "-w", "own", "--format", "json", "--install", folder))
    assert '"OWN": "fp32"' in str(job["script"])
    assert "llmb_workloads.torch_pretrain" in str(job["script"])  # llmb's own program
    (other,) = jobs_of(
        llmb_here(*PLANNED, "-w", "nemotron4", "--format", "json", "--install", folder)
    )
    assert "OWN" not in str(other["script"])


def test_a_plugin_named_in_the_configuration_changes_every_launch_and_is_shown(
    fabric: str, llmb_here: Command, cluster: Cluster
) -> None:
    folder = cluster(
        "local", "cpu", plugins={fabric: {"adapters": ["mlx5_0", "mlx5_1"], "log": True}}
    )
    done = llmb_here(*PLANNED, "-w", "nemotron4", "--format", "json", "--install", folder)
    (job,) = jobs_of(done)
    assert '"NCCL_IB_HCA": "mlx5_0,mlx5_1"' in str(job["script"])
    assert job["changed_by"] == {fabric: ["environment.NCCL_DEBUG", "environment.NCCL_IB_HCA"]}
    assert fabric in done.stderr


def test_an_installed_plugin_changes_nothing_unless_the_configuration_names_it(
    fabric: str, llmb_here: Command, cluster: Cluster
) -> None:
    (job,) = jobs_of(
        llmb_here(
            *PLANNED, "-w", "nemotron4", "--format", "json", "--install", cluster("local", "cpu")
        )
    )
    assert ("changed_by" in job, "NCCL_DEBUG" in str(job["script"])) == (False, False)


def test_a_plugin_of_the_configuration_that_fails_refuses_the_jobs_and_says_how_to_go_on(
    tmp_path: Path,
    llmb_here: Command,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    text = (EXAMPLES / "fabric.py").read_text()
    (tmp_path / "fabric.py").write_text(
        text.replace("    own = site", "    raise KeyError('x')\n    own = site")
    )
    monkeypatch.setenv("LLMB_PLUGINS", str(tmp_path))
    folder = cluster("local", "cpu", plugins={FABRIC: None})
    done = llmb_here(*PLANNED, "-w", "nemotron4", "--install", folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert llmb_here("list", "--install", folder).returncode == 0
    wording("plugin settings", done.stderr)


WRONG = [
    ({FABRIC: {"adapter": ["mlx5_0"]}}, "key-unknown", "plugins.file:fabric.py.adapter"),
    ({FABRIC: {"log": "loud"}}, "value-type", "plugins.file:fabric.py.log"),
    ({"llmb-nemotron4": {"x": 1}}, "key-unknown", "plugins.llmb-nemotron4"),
    ({"file:fabrik.py": {}}, "plugin-missing", "plugins.file:fabrik.py"),
    ({"llmb-nemotron5": {}}, "plugin-missing", "plugins.llmb-nemotron5"),
    ({"nobody": {}}, "plugin-missing", "plugins.nobody"),
]


@pytest.mark.parametrize(("sections", "code", "key"), WRONG)
def test_wrong_settings_are_errors_with_file_and_line(
    sections: dict[str, object],
    code: str,
    key: str,
    fabric: str,
    llmb_here: Command,
    cluster: Cluster,
    wording: Callable[..., None],
) -> None:
    folder = cluster("local", "cpu", plugins=sections)
    file = folder / "cluster_config.yaml"
    document = yamlfile.load(file)
    plugins = app.load()
    faults = plugins.check_settings(document)
    if not faults:
        with pytest.raises(InputFaults) as caught:
            plugins.require_named(document, document.data["plugins"])
        faults = caught.value.faults
    (fault,) = faults
    assert (fault.code, fault.key) == (code, key)
    line = int(fault.place.removeprefix(f"{file}:"))
    written = file.read_text().splitlines()[line - 1]
    assert key.rpartition(".")[2] in written or next(iter(sections)) in written
    done = llmb_here(*PLANNED, "-w", "nemotron4", "--install", folder)
    assert (done.returncode, done.stdout) == (2, "")
    wording("plugin settings", done.stderr)


def test_a_record_keeps_what_plugins_changed_and_explain_shows_it(
    make_install: Callable[..., Any], llmb_here: Command
) -> None:
    made = make_install()
    run = made.measured("a1", 2.75)
    changed = {FABRIC: ("environment.NCCL_DEBUG",)}
    record.save(replace(run, launch=replace(run.launch, changed_by=changed)))
    assert record.load(run.directory).launch.changed_by == changed
    done = llmb_here("explain", "a1", "--install", made.folder)
    assert f"{FABRIC} changed environment.NCCL_DEBUG" in done.stdout


def test_settings_reach_the_hooks_of_their_own_plugin_alone(
    install: Install, site_packages: Path
) -> None:
    code = OWN.replace(
        "@hookimpl(wrapper", "@hookimpl\ndef llmb_settings(): return Settings\n\n@hookimpl(wrapper"
    )
    code = code.replace("@hookimpl\ndef llmb_workload", "CLASS\n@hookimpl\ndef llmb_workload", 1)
    code = code.replace(
        "CLASS",
        "from dataclasses import dataclass\n@dataclass\nclass Settings:\n    rails: int = 1\n",
    )
    code = code.replace("def llmb_launch(job)", "def llmb_launch(site)").replace(
        "job.dtype", "str(site.own(Settings).rails)"
    )
    install("own", code, key="pretrain_own")
    install("other", code, key="pretrain_other")
    plugins = app.load()
    site = Site(
        cluster_type="local",
        gpu_type="cpu",
        gpus_per_node=1,
        install=Path("/i"),
        plugins={"Own": {"rails": 4}},
        traits=all_types()["local"].traits_of(None),
    )
    rails = {}
    for key, workload in plugins.workloads().items():
        if key in ("pretrain_own", "pretrain_other"):
            config = ClusterConfig(cluster_type="local", gpu_type="cpu", kind=all_types()["local"])
            (job,) = make_plan(
                [job_entry(workload=key, size="tiny", scales=(1,))], {key: workload}, config
            ).jobs
            launch = plugins.launch(workload, job, site)
            assert launch is not None
            rails[key] = launch.environment["OWN"]
    assert rails == {"pretrain_own": "4", "pretrain_other": "1"}


def test_the_settings_are_answers_of_the_installer_too(fabric: str, tmp_path: Path) -> None:
    """They are checked with file and line, and are in the configuration that it writes."""
    offered = load_offered()
    text = (
        f"cluster_type: local\ninstall: {tmp_path}\ngpu_type: cpu\nplugins:\n  {fabric}: {{log:"
        " %s}\n"
    )
    good, bad = (yamlfile.parse(text % value, name="a.yaml") for value in ("true", "loud"))
    answers = read_answers(good, workloads=offered.workloads)
    offered.check_settings(good, answers)
    own = compose_own_part(answers, make_site(answers, "cpu"), (), ())
    assert own["plugins"] == {fabric: {"log": True}}
    assert yamlfile.parse(to_yaml(answers), name="b.yaml").data["plugins"] == {
        fabric: {"log": True}
    }
    with pytest.raises(InputFaults) as caught:
        offered.check_settings(bad, read_answers(bad, workloads=offered.workloads))
    assert (caught.value.faults[0].place, caught.value.key) == ("a.yaml:5", f"plugins.{fabric}.log")


OWN_SETTINGS = """
@hookimpl
def llmb_settings():
    from dataclasses import dataclass
    @dataclass
    class Settings:
        rails: int = 1
    return Settings
"""
RAIL = {"rail": 2}
READING = (
    ("results",),
    ("results", "--format", "json"),
    ("jobs",),
    ("jobs", "show", "a1"),
    ("jobs", "logs", "a1"),
    ("list",),
    ("config",),
    ("compare", "a1", "--scaling"),
    ("report",),
    ("explain", "a1"),
    ("archive", "-o", "FILE"),
    ("jobs", "wait", "a1"),
    ("jobs", "reconcile"),
)


@pytest.mark.parametrize("section", [RAIL, {"rails": "many"}, 5], ids=str)
def test_a_wrong_setting_costs_the_launches_of_its_plugin_alone(
    section: object,
    install: Install,
    llmb_here: Command,
    make_install: Callable[..., Any],
    tmp_path: Path,
    wording: Callable[..., None],
) -> None:
    install("own", OWN + OWN_SETTINGS, key="pretrain_own")
    made = make_install()
    made.measured("a1", 2.75)
    file = made.folder / "cluster_config.yaml"
    file.write_text(f"{file.read_text()}\nplugins: {{own: {json.dumps(section)}}}\n")
    for words in READING if section == RAIL else (("results",),):
        command = [str(tmp_path / "runs.tar.zst") if word == "FILE" else word for word in words]
        done = llmb_here(*command, "--install", made.folder)
        assert done.returncode == 0, (command, done.stderr)
        of_it = [line for line in done.stderr.splitlines() if "plugins.own" in line]
        assert len(of_it) == (0 if command[0] == "list" else 1), (command, done.stderr)
    assert set(app.load().faults_of_settings(yamlfile.load(file))) == {"own:entry"}
    refused = llmb_here(*PLANNED, "-w", "own", "--install", made.folder)
    assert (refused.returncode, refused.stdout) == (2, "")
    wording("plugin settings", refused.stderr)
    other = llmb_here(
        "single",
        "-w",
        "nemotron4",
        "-s",
        "15b",
        "--scale",
        "16",
        "--dry-run",
        "--install",
        made.folder,
    )
    assert other.returncode == 0, other.stderr


@pytest.mark.parametrize("where", ["nowhere", "an install directory"])
def test_the_check_tries_the_plugins_for_a_whole_cluster_with_their_settings(
    where: str,
    tmp_path: Path,
    llmb_here: Command,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    """The example fails for a setting that only this configuration has, on the launch of another's
    workload.
    """
    text = (EXAMPLES / "fabric.py").read_text()
    broken = "    assert not site.own(Settings).log, job.workload\n    own = site"
    (tmp_path / "fabric.py").write_text(
        text.replace("    own = site", broken).replace("llmb_launch(", "llmb_launch(job, ")
    )
    monkeypatch.setenv("LLMB_PLUGINS", str(tmp_path))
    folder = cluster("local", "cpu", plugins={FABRIC: {"log": True}})
    if where == "an install directory":
        monkeypatch.chdir(folder)
    done = llmb_here("plugins", "check")
    assert done.returncode == (0 if where == "nowhere" else 1), done.stderr
    assert (f"from {folder / 'cluster_config.yaml'}" in done.stderr) == (where != "nowhere")
    assert ("pretrain_nemotron4" in done.stderr) == (where != "nowhere")
    wording("plugins check", done.stderr)


def test_the_check_reports_wrong_settings_at_file_and_line(
    fabric: str, llmb_here: Command, cluster: Cluster
) -> None:
    folder = cluster("local", "cpu", plugins={fabric: {"adapter": []}, "llmb-nemotron5": {}})
    done = llmb_here("plugins", "check", "--install", folder)
    assert done.returncode == 1
    for key in ("plugins.file:fabric.py.adapter", "plugins.llmb-nemotron5"):
        assert f"{folder / 'cluster_config.yaml'}:" in next(
            line for line in done.stderr.splitlines() if key in line
        )


def test_a_format_before_the_subcommand_is_refused_with_its_place(llmb_here: Command) -> None:
    assert json.loads(llmb_here("plugins", "--format", "json").stdout)
    done = llmb_here("plugins", "--format", "json", "list")
    assert (done.returncode, done.stdout) == (2, "")
    assert "llmb-run plugins list --format json" in done.stderr


@pytest.mark.parametrize(
    "key",
    [
        "plugins.file:fabric.py.log",
        'plugins."file:fabric.py".log',
        'plugins."file:fabric.py"."log"',
    ],
)
def test_a_setting_of_a_file_is_an_option_of_the_installer(key: str, fabric: str) -> None:
    offered = load_offered()
    document = read_layers(
        None, None, ["cluster_type=local", "gpu_type=cpu", "install=/x", f"{key}=true"]
    )
    answers = read_answers(document, workloads=offered.workloads)
    offered.check_settings(document, answers)
    assert answers.plugins == {fabric: {"log": True}}


def test_the_place_of_a_wrong_setting_of_a_file_is_the_option(fabric: str) -> None:
    offered, key = load_offered(), f"plugins.{FABRIC}.lock"
    document = read_layers(
        None, None, ["cluster_type=local", "gpu_type=cpu", "install=/x", f"{key}=true"]
    )
    with pytest.raises(InputFaults) as caught:
        offered.check_settings(document, read_answers(document, workloads=offered.workloads))
    assert (caught.value.faults[0].place, caught.value.key) == (f"--set {key}", key)
