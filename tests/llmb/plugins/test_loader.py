# SPDX-License-Identifier: Apache-2.0
"""Tests that plugins are found as installed distributions are, and that one that fails is named and
harms nobody.
"""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llmb.check import workload_trial
from llmb.check.log_trial import reader_for_log
from llmb.cli.app import build
from llmb.contract.formats import ParseSpec
from llmb.contract.gpus import known_types
from llmb.contract.job import Job
from llmb.contract.launch import Launch, Program, Site
from llmb.contract.needs import Task
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import Workload
from llmb.core.process import ProcessId
from llmb.errors import LlmbError, PluginError
from llmb.measure.log_reader import read_log
from llmb.plan.plan import make_plan
from llmb.plugins.contract import HOOKS
from llmb.plugins.loaded import Plugins
from llmb.plugins.owners import Problem
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

OURS = {
    "microbench",
    "node_check",
    "pretrain_deepseek",
    "pretrain_gpt_oss",
    "pretrain_kimi",
    "pretrain_llama3.1",
    "pretrain_nemotron3",
    "pretrain_nemotron4",
    "pretrain_nemotronh",
    "pretrain_qwen3",
}

SITE = Site(
    cluster_type="local",
    gpu_type="cpu",
    gpus_per_node=1,
    install=Path("/install"),
    traits=all_types()["local"].traits_of(None),
)

METADATA_ONLY = """
from pathlib import Path
from llmb.api import hookimpl, read_workload

@hookimpl
def llmb_workload():
    return read_workload(Path(__file__).with_name("{module}.yaml"))
"""

EVERY_HOOK = (
    METADATA_ONLY
    + """
from dataclasses import dataclass
import click
from llmb.api import Failure, Flops, ForeignInstall, Framework, JobList, Launch, LaunchVariable, LogSettings, Needs, ParseSpec, Program, ReportSection, Task
from llmb.contract.cluster_type import ClusterType

@dataclass(frozen=True)
class Settings:
    rails: int = 1

@hookimpl
def llmb_settings():
    return Settings

@hookimpl
def llmb_setup(workload, site):
    rails = Task(name=f"rails {{site.own(Settings).rails}}", argv=("true",))
    return Needs(needs=(Task(name=workload.key, argv=("true", site.cluster_type)), rails))

@hookimpl
def llmb_launch(workload, job, site):
    return Launch(name=job.experiment_name, nodes=1, ranks_per_node=job.scale, time_limit=job.time_limit,
                  program=Program(script="own.py"))

@hookimpl
def llmb_parse(workload, run):
    return ParseSpec(needle=f"step of {{run.job.workload}}")

@hookimpl
def llmb_flops(workload, shape):
    return Flops(convention=f"of {{workload.key}}", terms={{"all": 2.0 * shape.layers}})

@hookimpl
def llmb_clusters():
    return [ClusterType(name="moon", create=lambda config: None)]

@hookimpl
def llmb_frameworks():
    return [Framework(name="lunar", title="Lunar", launch=lambda *_: None, needs=lambda *_: None)]

@hookimpl
def llmb_commands():
    return [click.Command("greet", callback=lambda: click.echo("hello"))]

@hookimpl
def llmb_failures():
    return [Failure(kind="moon", text=("no moon",))]

@hookimpl
def llmb_report(results):
    return [ReportSection(title=f"{{len(results)}} results")]

@hookimpl
def llmb_nodes(name, runs):
    return [name, *(run.id for run in runs)]

@hookimpl
def llmb_hint(program, word, words):
    return " ".join((program, word, *words))

@hookimpl
def llmb_log_settings(log):
    return LogSettings(workload=log.name)

@hookimpl
def llmb_import(folder):
    return ForeignInstall(program="moonshot", vendor="Moon", folder=folder)

@hookimpl
def llmb_variables():
    return [LaunchVariable(name="MOON_STEPS", program="moonshot", sets="max_steps", read="count")]

@hookimpl
def llmb_job_list(name, text):
    return JobList(notes=(name, text))
"""
)

HOOK = "from llmb.api import hookimpl\n"

Install = Callable[..., str]
Load = Callable[[], Plugins]


def problems(plugins: Plugins) -> dict[str, str]:
    """The reason for each skipped plugin, after all hooks were called."""
    return {source: problem.reason for source, problem in skipped(plugins).items()}


def skipped(plugins: Plugins) -> dict[str, Problem]:
    """Each skipped plugin, after all hooks were called."""
    plugins.workloads()
    plugins.cluster_types()
    build(plugins)
    return {problem.source: problem for problem in plugins.problems}


def job_of(workload: Workload) -> Job:
    config = ClusterConfig(cluster_type="local", gpu_type="cpu", kind=all_types()["local"])
    plan = make_plan(
        [job_entry(workload=workload.key, size="tiny", scales=(2,))],
        {workload.key: workload},
        config,
    )
    assert not plan.faults
    return plan.jobs[0]


def run_of(job: Job, launch: Launch) -> RunRecord:
    return RunRecord(
        id="abc",
        created=0,
        llmb_version="0",
        cluster_type="local",
        directory=Path("/runs/abc"),
        job=job,
        launch=launch,
        script_name="script",
        submitter=ProcessId.current(),
    )


def test_what_llmb_brings_loads_without_a_problem(load: Load) -> None:
    plugins = load()
    assert problems(plugins) == {}
    assert set(plugins.workloads()) >= OURS


# The code of a faulty plugin, and what its reason must name.
BROKEN = {
    "raises": ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
    "missing": (
        "import a_module_that_is_not_there",
        "No module named 'a_module_that_is_not_there'",
    ),
    "syntax": ("def f(:", "SyntaxError"),
    "exits": ("raise SystemExit('bye')", "SystemExit: bye"),
    "silent": ("raise SystemExit", "SystemExit"),
    "misspelt": (HOOK + "@hookimpl\ndef llmb_lunch(workload, job, site): ...", "'llmb_launch'"),
    "prefix": (HOOK + "@hookimpl\ndef lmb_workload(): ...", "'llmb_workload'"),
    "unmarked": ("def llmb_workload(): ...", "@hookimpl"),
    "arguments": (HOOK + "@hookimpl\ndef llmb_launch(workload, jobs, site): ...", "'jobs'"),
    "nothing": ("", "llmb_workload, llmb_setup"),
    "workload_raises": (
        HOOK + "@hookimpl\ndef llmb_workload(): raise OSError('unmounted')",
        "OSError: unmounted",
    ),
    "workload_exits": (
        HOOK + "@hookimpl\ndef llmb_workload(): raise SystemExit(3)",
        "SystemExit: 3",
    ),
    "workload_none": (HOOK + "@hookimpl\ndef llmb_workload(): return None", "not a Workload"),
    "clusters_raise": (
        HOOK + "@hookimpl\ndef llmb_clusters(): return 1 / 0",
        "llmb_clusters: ZeroDivisionError",
    ),
    "clusters_words": (
        HOOK + "@hookimpl\ndef llmb_clusters(): return ['moon']",
        "llmb_clusters returned 'moon'",
    ),
    "commands_exit": (
        HOOK + "@hookimpl\ndef llmb_commands(): raise SystemExit",
        "llmb_commands: SystemExit",
    ),
    "commands_none": (
        HOOK + "@hookimpl\ndef llmb_commands(): return None",
        "llmb_commands returned None",
    ),
    "cluster_taken": (
        HOOK + "from llmb.contract.cluster_type import ClusterType\n"
        "@hookimpl\ndef llmb_clusters(): return [ClusterType(name='local', create='a:b')]",
        "llmb already has the cluster type 'local'",
    ),
    "command_taken": (
        HOOK + "import click\n@hookimpl\ndef llmb_commands(): return [click.Command('list')]",
        "llmb already has the command 'list'",
    ),
}
CODES = {
    "misspelt": "hook-unknown",
    "prefix": "hook-unknown",
    "unmarked": "hook-unmarked",
    "arguments": "argument-unknown",
    "nothing": "hook-missing",
    "workload_none": "answer-type",
    "clusters_words": "answer-type",
    "commands_none": "answer-type",
    "cluster_taken": "name-duplicate",
    "command_taken": "name-duplicate",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_is_skipped_with_its_reason_and_the_others_work(
    name: str, install: Install, load: Load
) -> None:
    code, reason = BROKEN[name]
    source = install(name, code)
    install("healthy", METADATA_ONLY, key="pretrain_healthy")
    plugins = load()
    found = skipped(plugins)
    assert set(found) == {source}
    assert found[source].code == CODES.get(name, "plugin-failed")
    assert reason in found[source].reason
    assert set(plugins.workloads()) >= {*OURS, "pretrain_healthy"}
    assert {"list", "submit-all"} <= set(build(plugins).commands)
    assert "local" in plugins.cluster_types()


def test_every_broken_plugin_is_named_when_there_are_many(install: Install, load: Load) -> None:
    sources = {install(name, code) for name, (code, _) in BROKEN.items()}
    assert set(problems(load())) == sources


def test_an_entry_point_that_names_nothing_is_named(install: Install, load: Load) -> None:
    source = install("gone", "", target="fake_gone:plugin")
    assert "plugin" in problems(load())[source]


def test_rows_that_cannot_be_read_are_named_with_file_line_and_nearest_word(
    install: Install, load: Load, site_packages: Path
) -> None:
    source = install("typo", METADATA_ONLY, key="pretrain_typo")
    path = site_packages / "fake_typo.yaml"
    path.write_text(path.read_text().replace("default_dtype", "defualt_dtype"))
    plugins = load()
    fault = skipped(plugins)[source].faults[0]
    assert (Path(fault.place).name, fault.code, fault.value) == (
        "fake_typo.yaml:5",
        "key-unknown",
        "defualt_dtype",
    )
    assert set(plugins.workloads()) == OURS


@pytest.mark.parametrize(
    "spelling", ["pretrain_twin", "pretrain_Twin", "twin", "pretraining-t.win"]
)
def test_a_key_that_two_plugins_claim_is_refused_to_both(
    spelling: str, install: Install, load: Load
) -> None:
    first = install("first", METADATA_ONLY, key="pretrain_twin")
    second = install("second", METADATA_ONLY, key=spelling)
    found = problems(load())
    assert set(found) == {first, second}
    assert second in found[first]
    assert first in found[second]
    assert "'pretrain_twin'" in found[first]
    assert set(load().workloads()) == OURS


@pytest.mark.parametrize("name", ["aaa", "zebra"])
def test_a_stranger_cannot_take_a_key_of_ours(name: str, install: Install, load: Load) -> None:
    stranger = install(name, METADATA_ONLY, key="pretrain_nemotron-4")
    plugins = load()
    found = skipped(plugins)
    assert {source: one.code for source, one in found.items()} == {stranger: "workload-duplicate"}
    assert "llmb-nemotron4:nemotron4" in found[stranger].reason
    assert set(plugins.workloads()) == OURS
    assert plugins.offers["pretrain_nemotron4"].source == "llmb-nemotron4:nemotron4"


def test_the_order_of_installation_changes_nothing(install: Install, load: Load) -> None:
    for name in ("zebra", "ape"):
        install(name, METADATA_ONLY, key=f"pretrain_{name}")
    assert [source for source in load().sources if "llmb-" not in source] == [
        "ape:entry",
        "zebra:entry",
    ]


def test_llmb_answers_the_hooks_that_a_metadata_only_plugin_lacks(
    install: Install, load: Load
) -> None:
    install("small", METADATA_ONLY, key="pretrain_small")
    plugins = load()
    workload = plugins.workloads()["pretrain_small"]
    launch = plugins.launch(workload, job_of(workload), SITE)
    assert launch is not None
    assert launch.program == Program(module="llmb_workloads.torch_pretrain")
    assert launch.ranks_per_node == 2
    assert plugins.parse(workload, run_of(job_of(workload), launch)) == ParseSpec()


def test_a_plugin_that_answers_none_leaves_it_to_llmb(install: Install, load: Load) -> None:
    code = METADATA_ONLY + "\n@hookimpl\ndef llmb_launch(workload, job, site): return None\n"
    install("shy", code, key="pretrain_shy")
    plugins = load()
    workload = plugins.workloads()["pretrain_shy"]
    launch = plugins.launch(workload, job_of(workload), SITE)
    assert launch is not None
    assert launch.program.module == "llmb_workloads.torch_pretrain"


def test_one_plugin_is_not_asked_for_the_workload_of_another(install: Install, load: Load) -> None:
    install("greedy", EVERY_HOOK, key="pretrain_greedy")
    install("small", METADATA_ONLY, key="pretrain_small")
    plugins = load()
    workload = plugins.workloads()["pretrain_small"]
    launch = plugins.launch(workload, job_of(workload), SITE)
    assert launch is not None
    assert launch.program.script is None


MI300X = (
    "gpu_types: {{mi300x: {{gpus_per_node: 8, peak_tflops: {{bf16: {peak}}}, memory_gb: 192}}}}\n"
)


def with_types(site_packages: Path, install: Install, name: str, types: str) -> str:
    """Install a plugin whose workload brings GPU types; its source."""
    source = install(name, METADATA_ONLY, key=f"pretrain_{name}")
    file = site_packages / f"fake_{name}.yaml"
    file.write_text(file.read_text() + types.format(peak=1307))
    return source


def test_gpu_types_that_plugins_bring(site_packages: Path, install: Install, load: Load) -> None:
    for name in ("one", "two"):
        with_types(site_packages, install, name, MI300X)
    plugins = load()
    assert plugins.gpu_types["mi300x"].peak_tflops == {"bf16": 1307}
    assert plugins.gpu_types["h100"] == known_types()["h100"]
    assert problems(plugins) == {}, "equal definitions do not conflict"


def test_two_plugins_that_define_a_gpu_type_differently_are_both_refused(
    site_packages: Path, install: Install, load: Load
) -> None:
    sources = [
        with_types(site_packages, install, "one", MI300X),
        with_types(site_packages, install, "two", MI300X.replace("{peak}", "1000")),
    ]
    plugins = load()
    assert "mi300x" not in plugins.gpu_types
    found = skipped(plugins)
    assert {source: found[source].code for source in found} == dict.fromkeys(
        sources, "gpu-type-conflict"
    )
    for source in sources:  # each names both places
        for name in ("one", "two"):
            file = site_packages / f"fake_{name}.yaml"
            line = (
                file.read_text()
                .splitlines()
                .index(MI300X.splitlines()[0].format(peak=1307 if name == "one" else 1000))
            )
            assert f"{file}:{line + 1}" in found[source].reason


def test_a_plugin_that_redefines_a_known_gpu_type_is_refused(
    site_packages: Path, install: Install, load: Load
) -> None:
    source = with_types(
        site_packages, install, "own", "gpu_types: {{h100: {{gpus_per_node: 8}}}}\n"
    )
    plugins = load()
    assert skipped(plugins)[source].code == "gpu-type-conflict"
    assert "gpus.yaml:" in skipped(plugins)[source].reason
    assert plugins.gpu_types["h100"] == known_types()["h100"]


@pytest.mark.parametrize("hook", ["llmb_setup", "llmb_launch", "llmb_parse", "llmb_flops"])
def test_a_hook_that_raises_is_an_error_that_names_plugin_hook_and_reason(
    hook: str, install: Install, load: Load
) -> None:
    arguments = {
        "llmb_setup": "site",
        "llmb_launch": "job, site",
        "llmb_parse": "run",
        "llmb_flops": "shape",
    }[hook]
    code = (
        METADATA_ONLY
        + f"\n@hookimpl\ndef {hook}(workload, {arguments}): raise KeyError('scratch')\n"
    )
    source = install("failing", code, key="pretrain_failing")
    plugins = load()
    workload = plugins.workloads()["pretrain_failing"]
    job = job_of(workload)
    run = run_of(
        job,
        Launch(name="x", nodes=1, ranks_per_node=1, time_limit=1, program=Program(script="x.py")),
    )
    ask: dict[str, Callable[[], object]] = {
        "llmb_setup": lambda: plugins.setup(workload, SITE),
        "llmb_launch": lambda: plugins.launch(workload, job, SITE),
        "llmb_parse": lambda: plugins.parse(workload, run),
        "llmb_flops": lambda: plugins.flops(workload, job.trained.model),
    }
    with pytest.raises(LlmbError, match="KeyError: 'scratch'") as caught:
        ask[hook]()
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "plugin-failed",
        hook,
        source,
    )


@pytest.mark.parametrize(
    ("hook", "kind"), [("setup", "Needs"), ("launch", "Launch"), ("parse", "ParseSpec or")]
)
def test_a_hook_that_gives_another_thing_is_an_error_that_names_it(
    hook: str, kind: str, install: Install, load: Load
) -> None:
    install(
        "odd",
        METADATA_ONLY + f"\n@hookimpl\ndef llmb_{hook}(workload): return [3]\n",
        key="pretrain_odd",
    )
    plugins = load()
    workload = plugins.workloads()["pretrain_odd"]
    arguments: dict[str, tuple[object, ...]] = {
        "setup": (SITE,),
        "launch": (job_of(workload), SITE),
        "parse": (run_of(job_of(workload), LAUNCHED),),
    }
    with pytest.raises(LlmbError, match=rf"\[3\].* {kind}") as caught:
        getattr(plugins, hook)(workload, *arguments[hook])
    assert (caught.value.code, caught.value.key) == ("answer-type", f"llmb_{hook}")


LAUNCHED = Launch(name="x", nodes=1, ranks_per_node=1, time_limit=1, program=Program(script="x.py"))
LAUNCH = """
@hookimpl
def llmb_launch(job, site):
    from llmb.api import Launch, Program, Server, StagedFile, Wrapper
    given = dict(
        name=job.experiment_name, nodes=1, ranks_per_node=1, time_limit=60, program=Program(argv=("true",))
    )
    return Launch(**{{**given, {wrong}}})
"""
WRONG_LAUNCHES = [
    ('"nodes": "2"', "value-type", "nodes"),
    ('"nodes": True', "value-type", "nodes"),
    ('"nodes": 0', "value-invalid", "nodes"),
    ('"time_limit": 1.5', "value-type", "time_limit"),
    ('"name": "a/b"', "name-invalid", "name"),
    ('"name": 7', "value-type", "name"),
    ('"args": ("--steps", 50)', "value-type", "args"),
    ('"args": "--steps"', "value-type", "args"),
    ('"environment": {{"N": 1}}', "value-type", "environment"),
    ('"start": "torchrun"', "value-type", "start"),
    ('"venv": site.install', "value-type", "venv"),
    ('"program": "true"', "value-type", "program"),
    ('"program": Program()', "program-kind", ""),
    ('"program": Program(argv=("a",), shell="b")', "program-kind", ""),
    ('"program": Program(argv=["a"])', "value-type", "argv"),
    (
        '"server": Server(program=Program(argv=("a",)), ready_seconds=0)',
        "value-invalid",
        "ready_seconds",
    ),
    (
        '"server": Server(program=Program(argv=("a",)), on_every_rank=True), "start": "once"',
        "value-invalid",
        "server",
    ),
    ('"wrappers": (Wrapper(name="w", argv=("a", None)),)', "value-type", "argv"),
    ('"files": (StagedFile(name="a", text=b"x"),)', "value-type", "text"),
    ('"files": (StagedFile(name="/etc/x", text=""),)', "file-outside", "name"),
    ('"files": (StagedFile(name="a/../../x", text=""),)', "file-outside", "name"),
    ('"files": (StagedFile(name="log-x.out", text=""),)', "file-reserved", "name"),
    ('"files": (StagedFile(name="./state.json", text=""),)', "file-reserved", "name"),
    ('"files": (StagedFile(name="./reader.json", text=""),)', "file-reserved", "name"),
    (
        '"files": (StagedFile(name="a", text=""), StagedFile(name="./a", text=""))',
        "file-duplicate",
        "files",
    ),
    (
        '"files": (StagedFile(name="a/b", text=""), StagedFile(name="a", text=""))',
        "file-duplicate",
        "files",
    ),
    ('"files": (StagedFile(name="launch_" + given["name"], text=""),)', "file-duplicate", "files"),
    ('"name": "other"', "name-differs", "name"),
    ('"args": ("a" + chr(0),)', "text-invalid", "args"),
    ('"environment": {{"A": chr(0)}}', "text-invalid", "environment"),
    ('"environment": {{"A B": "1"}}', "value-invalid", "environment"),
    ('"environment": {{"": "1"}}', "value-invalid", "environment"),
    ('"environment": {{"A=B": "1"}}', "value-invalid", "environment"),
    ('"secrets": ("1TOKEN",)', "value-invalid", "secrets"),
    ('"image": ""', "value-invalid", "image"),
    ('"venv": " "', "value-invalid", "venv"),
    ('"mounts": ("a",)', "value-invalid", "mounts"),
    ('"mounts": ("/a:b",)', "value-invalid", "mounts"),
    ('"program": Program(argv=("",))', "value-invalid", "argv"),
    ('"program": Program(module="a b")', "value-invalid", "module"),
    ('"program": Program(shell="echo " + chr(0))', "text-invalid", "program.shell"),
    ('"after": Program(module="a..b")', "value-invalid", "module"),
    ('"files": (StagedFile(name="a" + chr(0), text=""),)', "text-invalid", "files.name"),
    ('"files": (StagedFile(name="a", text=chr(0xD800)),)', "text-invalid", "files.text"),
    ('"files": (StagedFile(name="a" + chr(10), text=""),)', "value-invalid", "files"),
]


@pytest.mark.parametrize(("wrong", "code", "field"), WRONG_LAUNCHES)
def test_a_wrong_value_of_a_launch_names_plugin_hook_and_field(
    wrong: str, code: str, field: str, install: Install, load: Load
) -> None:
    text = LAUNCH.replace("{wrong}", wrong).replace("{{", "{").replace("}}", "}")
    source = install(
        "wrong", METADATA_ONLY.replace("{module}", "fake_wrong") + text, key="pretrain_wrong"
    )
    plugins = load()
    workload = plugins.workloads()["pretrain_wrong"]
    with pytest.raises(LlmbError) as caught:
        plugins.launch(workload, job_of(workload), SITE)
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        code,
        field or "llmb_launch",
        source,
    )


@pytest.mark.parametrize(
    ("need", "code", "field"),
    [
        ('Task(name="t", argv="make")', "value-type", "argv"),
        ('Task(name="t", argv=("make",), creates=("/etc",))', "path-outside", "creates"),
        ('Venv(name="t", requirements=["torch"])', "value-type", "requirements"),
        ('Repo(url="u", commit=7)', "value-type", "commit"),
        ('"torch"', "value-type", "needs"),
        ('Venv(name="../up", requirements=())', "name-invalid", "name"),
        ('Repo(url="u", commit="../up")', "path-outside", "commit"),
        ('HubAsset(repository="a/b", files=("../up",))', "path-outside", "files"),
        ('HubAsset(repository="a/b", files=("f",), revision="..")', "path-outside", "revision"),
    ],
)
def test_a_wrong_need_names_plugin_hook_and_field(
    need: str, code: str, field: str, install: Install, load: Load
) -> None:
    hook = (
        "\nfrom llmb.api import *\n@hookimpl\ndef llmb_setup():\n    return"
        f" Needs(needs=({need},))\n"
    )
    source = install("wrong", METADATA_ONLY + hook, key="pretrain_wrong")
    plugins = load()
    with pytest.raises(LlmbError) as caught:
        plugins.setup(plugins.workloads()["pretrain_wrong"], SITE)
    assert (caught.value.code, caught.value.key, caught.value.value) == (code, field, source)


@pytest.mark.parametrize(
    ("samples", "code", "field"),
    [
        ("steps=[Step(iteration=0, step_time=1.0)]", "value-type", "steps"),
        ("steps=(Step(iteration=0, step_time='1'),)", "value-type", "step_time"),
        (
            "steps=(Step(iteration=0, step_time=1.0, values=dict(busbw=1)),)",
            "metric-unknown",
            "values.busbw",
        ),
    ],
)
def test_wrong_samples_name_plugin_hook_and_field(
    samples: str, code: str, field: str, install: Install, load: Load
) -> None:
    hook = (
        "\nfrom llmb.api import Samples, Step\n@hookimpl\ndef llmb_parse():\n    return"
        f" Samples({samples})\n"
    )
    source = install("wrong", METADATA_ONLY + hook, key="pretrain_wrong")
    plugins = load()
    workload = plugins.workloads()["pretrain_wrong"]
    launch = Launch(
        name="x", nodes=1, ranks_per_node=1, time_limit=1, program=Program(script="x.py")
    )
    with pytest.raises(LlmbError) as caught:
        plugins.parse(workload, run_of(job_of(workload), launch))
    assert (caught.value.code, caught.value.key, caught.value.value) == (code, field, source)


@pytest.mark.parametrize(
    "answer",
    [
        "2.5e15",
        "Flops(convention='own', terms={{'all': float('nan')}})",
        "Flops(convention='own', terms={{'all': -1.0}})",
        "Flops(convention='own', terms={{'all': '1e15'}})",
        "Flops(convention='', terms={{'all': 1e15}})",
    ],
)
def test_operations_that_cannot_be_name_plugin_and_hook(
    answer: str, install: Install, load: Load
) -> None:
    code = (
        METADATA_ONLY
        + f"\nfrom llmb.api import Flops\n@hookimpl\ndef llmb_flops(): return {answer}\n"
    )
    source = install("odd", code, key="pretrain_odd")
    plugins = load()
    workload = plugins.workloads()["pretrain_odd"]
    with pytest.raises(LlmbError) as caught:
        plugins.flops(workload, job_of(workload).trained.model)
    code = "value-not-allowed" if answer.startswith("Flops") else "answer-type"
    assert (caught.value.code, caught.value.value) == (code, source)
    assert caught.value.key.partition(".")[0] in ("terms", "convention", "llmb_flops")


def test_without_an_answer_llmbs_formulas_are_used(install: Install, load: Load) -> None:
    install("small", METADATA_ONLY, key="pretrain_small")
    plugins = load()
    workload = plugins.workloads()["pretrain_small"]
    assert plugins.flops(workload, job_of(workload).trained.model) is None


def test_a_plugin_that_reads_its_log_itself(install: Install, load: Load) -> None:
    code = METADATA_ONLY + "\nfrom llmb.api import Samples, Step\n@hookimpl\ndef llmb_parse():\n"
    install(
        "own",
        code + "    return Samples(steps=(Step(iteration=0, step_time=2.5),), last=0)\n",
        key="pretrain_own",
    )
    plugins = load()
    workload = plugins.workloads()["pretrain_own"]
    launch = Launch(
        name="x", nodes=1, ranks_per_node=1, time_limit=1, program=Program(script="x.py")
    )
    spec = plugins.parse(workload, run_of(job_of(workload), launch))
    assert spec is not None
    (step,) = read_log(Path("/no/such/log"), spec).steps
    assert (step.iteration, step.step_time) == (0, 2.5)


@pytest.mark.parametrize(
    ("spec", "key", "code"),
    [
        ("iteration='('", "iteration", "pattern-invalid"),
        ("keys={'step_tme': 'ms'}", "keys.step_tme", "key-unknown"),
        ("units={'step_tim': 1e-3}", "units.step_tim", "key-unknown"),
    ],
)
def test_a_spec_that_cannot_be_right_names_plugin_hook_and_field(
    spec: str, key: str, code: str, install: Install, load: Load
) -> None:
    hook = (
        f"\nfrom llmb.api import ParseSpec\n@hookimpl\ndef llmb_parse(): return ParseSpec({spec})\n"
    )
    source = install(
        "wrong", METADATA_ONLY.format(module="fake_wrong") + hook, key="pretrain_wrong"
    )
    plugins = load()
    workload = plugins.workloads()["pretrain_wrong"]
    job = job_of(workload)
    launch = Launch(name="x", nodes=1, ranks_per_node=1, time_limit=1, program=Program(module="m"))
    with pytest.raises(PluginError) as caught:
        plugins.parse(workload, run_of(job, launch))
    assert (caught.value.code, caught.value.key, caught.value.value) == (code, key, source)
    assert "llmb_parse" in caught.value.message
    assert caught.value.hint


def test_a_plugin_that_raises_is_named_with_its_line(install: Install, load: Load) -> None:
    source = install("late", "\n\nraise RuntimeError('no licence')\n")
    assert problems(load())[source].endswith("fake_late.py:3)")


def test_a_table_that_cannot_be_read_is_reported_with_place_and_fix(
    install: Install, load: Load
) -> None:
    source = install(
        "typo",
        METADATA_ONLY.replace("read_workload(", "read_workload('/no/w.yaml' or "),
        key="pretrain_t",
    )
    reason = problems(load())[source]
    assert ("/no/w.yaml" in reason, os.strerror(errno.ENOENT) in reason) == (True, True)


def test_an_error_for_the_user_passes_through_a_hook_unchanged(
    install: Install, load: Load
) -> None:
    code = METADATA_ONLY + "\nfrom llmb.errors import UsageError\n"
    code += (
        "@hookimpl\ndef llmb_launch(workload, job, site): raise UsageError('2 is odd', hint='take"
        " 1')\n"
    )
    install("strict", code, key="pretrain_strict")
    plugins = load()
    workload = plugins.workloads()["pretrain_strict"]
    with pytest.raises(LlmbError, match=r"^2 is odd$") as raised:
        plugins.launch(workload, job_of(workload), SITE)
    assert raised.value.exit_code == 2


def asks_workload(plugins: Plugins) -> bool:
    return plugins.workloads()["pretrain_full"].title == "A stranger's"


def asks_setup(plugins: Plugins) -> bool:
    workload = plugins.workloads()["pretrain_full"]
    needs = plugins.setup(workload, SITE)
    return needs is not None and needs.needs[0] == Task(
        name="pretrain_full", argv=("true", "local")
    )


def asks_launch(plugins: Plugins) -> bool:
    workload = plugins.workloads()["pretrain_full"]
    launch = plugins.launch(workload, job_of(workload), SITE)
    return launch is not None and launch.program == Program(script="own.py")


def asks_parse(plugins: Plugins) -> bool:
    workload = plugins.workloads()["pretrain_full"]
    launch = plugins.launch(workload, job_of(workload), SITE)
    assert launch is not None
    spec = plugins.parse(workload, run_of(job_of(workload), launch))
    return spec is not None and spec.needle == "step of pretrain_full"


def asks_flops(plugins: Plugins) -> bool:
    workload = plugins.workloads()["pretrain_full"]
    shape = job_of(workload).trained.model
    flops = plugins.flops(workload, shape)
    return flops is not None and (flops.convention, flops.total) == (
        "of pretrain_full",
        2.0 * shape.layers,
    )


def asks_settings(plugins: Plugins) -> bool:
    workload = plugins.workloads()["pretrain_full"]
    site = replace(SITE, plugins={"full": {"rails": 4}})
    needs = plugins.setup(workload, site)
    return needs is not None and needs.needs[-1] == Task(name="rails 4", argv=("true",))


def asks_clusters(plugins: Plugins) -> bool:
    return plugins.cluster_types()["moon"].name == "moon"


def asks_frameworks(plugins: Plugins) -> bool:
    return plugins.frameworks["lunar"].title == "Lunar"


def asks_commands(plugins: Plugins) -> bool:
    return "greet" in build(plugins).commands


def asks_failures(plugins: Plugins) -> bool:
    return [failure.kind for failure in plugins.failures] == ["moon"]


def asks_report(plugins: Plugins) -> bool:
    return [section.title for section in plugins.report_sections([])] == ["0 results"]


def asks_nodes(plugins: Plugins) -> bool:
    return plugins.nodes("cold", []) == ["cold"]


def asks_hint(plugins: Plugins) -> bool:
    return plugins.hint_for("llmb-run", "x", ["x", "y"], ["-v"]) == "llmb-run x x y"


def asks_log_settings(plugins: Plugins) -> bool:
    settings = plugins.log_settings(Path("a/b.log"))
    return settings is not None and settings.workload == "b.log"


def asks_import(plugins: Plugins) -> bool:
    found = plugins.foreign_install(Path("a"))
    return found is not None and found.tool == "Moon's moonshot"


def asks_variables(plugins: Plugins) -> bool:
    return plugins.variables()["MOON_STEPS"].value("3") == 3


def asks_job_list(plugins: Plugins) -> bool:
    listed = plugins.job_list("a", "b")
    return listed is not None and listed.notes == ("a", "b")


ASKED = {
    "llmb_workload": asks_workload,
    "llmb_setup": asks_setup,
    "llmb_launch": asks_launch,
    "llmb_parse": asks_parse,
    "llmb_flops": asks_flops,
    "llmb_clusters": asks_clusters,
    "llmb_settings": asks_settings,
    "llmb_frameworks": asks_frameworks,
    "llmb_commands": asks_commands,
    "llmb_failures": asks_failures,
    "llmb_report": asks_report,
    "llmb_nodes": asks_nodes,
    "llmb_hint": asks_hint,
    "llmb_log_settings": asks_log_settings,
    "llmb_import": asks_import,
    "llmb_variables": asks_variables,
    "llmb_job_list": asks_job_list,
}


def test_no_hook_is_forgotten_here() -> None:
    assert set(ASKED) == set(HOOKS)


@pytest.mark.parametrize("hook", ASKED)
def test_a_plugins_own_answer_wins(hook: str, install: Install, load: Load) -> None:
    install("full", EVERY_HOOK, key="pretrain_full")
    plugins = load()
    assert ASKED[hook](plugins)
    assert problems(plugins) == {}


def test_a_plugin_may_be_an_object(install: Install, load: Load) -> None:
    code = METADATA_ONLY.replace(
        "@hookimpl\ndef llmb_workload():", "class Own:\n  @hookimpl\n  def llmb_workload(self):"
    )
    install(
        "thing",
        code.replace("    return", "      return") + "\nplugin = Own()\n",
        key="pretrain_thing",
        target="fake_thing:plugin",
    )
    plugins = load()
    assert problems(plugins) == {}
    assert "pretrain_thing" in plugins.workloads()


def test_the_same_problem_is_reported_once(install: Install, load: Load) -> None:
    install("raises", HOOK + "@hookimpl\ndef llmb_commands(): raise OSError")
    plugins = load()
    build(plugins)
    build(plugins)
    assert len(plugins.problems) == 1


@pytest.mark.parametrize("hook", ["llmb_setup", "llmb_launch", "llmb_parse"])
# the limit may pass in a callback of gc
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_hook_that_does_not_end_is_interrupted_and_named(
    hook: str, install: Install, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMB_PLUGIN_TIMEOUT", "0.3")
    code = METADATA_ONLY + f"\nimport time\n@hookimpl\ndef {hook}(workload):\n    while True:\n"
    code += "        try: time.sleep(60)\n        except Exception: pass\n"
    source = install("endless", code, key="pretrain_endless")
    plugins = load()
    workload = plugins.workloads()["pretrain_endless"]
    arguments: dict[str, tuple[object, ...]] = {
        "setup": (SITE,),
        "launch": (job_of(workload), SITE),
        "parse": (run_of(job_of(workload), LAUNCHED),),
    }
    with pytest.raises(LlmbError) as caught:
        getattr(plugins, hook.removeprefix("llmb_"))(
            workload, *arguments[hook.removeprefix("llmb_")]
        )
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "plugin-timeout",
        hook,
        source,
    )


@pytest.mark.parametrize("hook", ["llmb_workload", "llmb_commands"])
def test_a_plugin_whose_workload_or_commands_do_not_end_is_skipped_and_named(
    hook: str, install: Install, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMB_PLUGIN_TIMEOUT", "0.3")
    code = (
        f"import time\nfrom llmb.api import hookimpl\n\n@hookimpl\ndef {hook}():\n    while True:"
        " time.sleep(9)\n"
    )
    source = install("endless", code, key="pretrain_endless")
    plugins = load()
    plugins.workloads()
    plugins.commands()
    assert any(
        problem.source == source and "0.3 s" in problem.reason for problem in plugins.problems
    )


SEVERAL = """
from pathlib import Path
from llmb.api import Command, ParseSpec, Program, hookimpl, read_workload
from dataclasses import replace

@hookimpl
def llmb_workload():
    only = read_workload(Path(__file__).with_name("{module}.yaml"))
    return [only, replace(only, key="pretrain_other")]

@hookimpl
def llmb_launch(workload, job):
    return Command(program=Program(argv=("true", workload.key)), environment={{"A": "1", "B": "1"}})

@hookimpl
def llmb_parse(size, log, run):
    assert run is None
    return ParseSpec(needle=f"{{size}} in {{log.name}}")
"""


def test_a_plugin_with_several_workloads(install: Install, load: Load) -> None:
    source = install("several", SEVERAL, key="pretrain_one")
    plugins = load()
    keys = [key for key, offer in plugins.offers.items() if offer.source == source]
    assert keys == ["pretrain_one", "pretrain_other"]


def test_what_a_command_does_not_say_follows_from_the_job(install: Install, load: Load) -> None:
    install("several", SEVERAL, key="pretrain_one")
    plugins = load()
    workload = plugins.workloads()["pretrain_other"]
    job = replace(job_of(workload), env={"B": "2"})
    launch = plugins.launch(workload, job, SITE)
    assert launch is not None
    assert launch.program.argv == ("true", "pretrain_other")
    assert launch.environment == {"A": "1", "B": "2"}
    named = (launch.name, launch.nodes, launch.ranks_per_node, launch.time_limit, launch.image)
    assert named == (
        job.experiment_name,
        job.nodes,
        job.gpus_per_node,
        job.time_limit,
        job.image,
    )


def test_a_log_needs_no_run(
    install: Install, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("several", SEVERAL, key="pretrain_one")
    plugins = load()
    workload = plugins.workloads()["pretrain_one"]
    monkeypatch.setattr(workload_trial, "jobs_of", None)  # no job is planned for it
    reader = reader_for_log(workload, "tiny", tmp_path / "a.log", plugins)
    assert reader.spec.needle == "tiny in a.log"


def test_a_hook_of_the_first_contract_gets_a_run_of_a_log(
    install: Install, load: Load, tmp_path: Path
) -> None:
    code = METADATA_ONLY + "\nfrom llmb.api import ParseSpec\n@hookimpl\ndef llmb_parse(run):\n"
    code += "    return ParseSpec(needle=f'{{run.job.model_size}} in {{run.log.name}}')\n"
    install("older", code, key="pretrain_older")
    plugins = load()
    workload = plugins.workloads()["pretrain_older"]
    reader = reader_for_log(workload, None, tmp_path / "a.log", plugins)
    assert reader.spec.needle == "tiny in a.log"
