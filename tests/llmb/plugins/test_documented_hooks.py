# SPDX-License-Identifier: Apache-2.0
"""Runs the example of each hook in docs/write-a-plugin.md; a hook without an example or a test here
fails.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from llmb import api, hookspecs
from llmb.check.log_trial import LogOnly
from llmb.contract.launch import Launch, Program
from llmb.core import typed, yamlfile
from llmb.core.process import ProcessId
from llmb.plugins.cluster_checks import with_source
from llmb_installer.cluster_types import all_types
from llmb_testing.job import SMALLEST_JOB, SMALLEST_MODEL

PAGE = Path(__file__).parents[3] / "docs/write-a-plugin.md"
HOOKS = [name for name in vars(hookspecs) if name.startswith("llmb_")]
SITE = api.Site(
    cluster_type="slurm",
    gpu_type="h100",
    gpus_per_node=8,
    install=Path("/install"),
    traits=all_types()["slurm"].traits_of(None),
)
TABLE = """\
key: acme
title: A
default_size: a
default_dtype: none
metrics: [{name: latency, unit: ms, better: lower}]
sizes: {a: {rows: [{gpu: any, dtype: none, scales: [1]}]}}
"""


def section(hook: str) -> str:
    """The section of the page about a hook, empty without one."""
    found = re.search(
        rf"^### {hook}\n(.*?)(?=^### |\Z)", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return found[1] if found is not None else ""


def examples(hook: str) -> list[str]:
    """The Python of that section that implements the hook."""
    blocks = re.findall(r"^```python\n(.*?)^```$", section(hook), re.DOTALL | re.MULTILINE)
    return [block for block in blocks if f"@hookimpl\ndef {hook}(" in block]


def hook_of(name: str, file: Path = PAGE) -> Any:
    """The hook of its example."""
    (text,) = examples(name)
    names: dict[str, object] = {"__file__": str(file), "__name__": "builtins"}
    exec(compile(text, str(PAGE), "exec"), names)
    return names[name]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_an_example_and_a_test(hook: str) -> None:
    assert examples(hook), f"add an example of {hook} to {PAGE}, in a section with its name"
    assert f"test_{hook}" in globals(), f"add test_{hook} to {__file__}"


def test_llmb_workload(tmp_path: Path) -> None:
    (tmp_path / "workload.yaml").write_text(TABLE)
    assert hook_of("llmb_workload", tmp_path / "__init__.py")() == api.read_workload(
        tmp_path / "workload.yaml"
    )


def test_llmb_setup() -> None:
    hook = hook_of("llmb_setup")
    repo, task = hook(SITE).needs
    assert hook(SITE) == hook(replace(SITE))
    assert task.argv[:3] == ("make", "-C", str(repo.folder(SITE.install)))
    assert task.argv[3] == "BUILDDIR=/install/acme/nccl-tests"
    assert task.creates == ("acme/nccl-tests/all_reduce_perf",)


def test_llmb_launch() -> None:
    """tests/llmb/plugins/test_documented_plugins.py runs it."""
    job = replace(SMALLEST_JOB, max_steps=7, parameters={"megabytes": "64"}, training=None)
    command = hook_of("llmb_launch")(job)
    assert (command.args, command.start) == (("7", "64"), "once")
    assert "dd if=/dev/zero" in command.program.shell
    launch = Launch.of(command, job, SITE)
    assert (launch.name, launch.nodes, launch.image) == (job.experiment_name, job.nodes, job.image)


def test_llmb_parse(tmp_path: Path) -> None:
    run = LogOnly(
        id="x",
        created=0.0,
        llmb_version="",
        cluster_type="local",
        directory=tmp_path,
        job=replace(SMALLEST_JOB, max_steps=3),
        launch=Launch(
            name="x", nodes=1, ranks_per_node=1, time_limit=60, program=Program(module="m")
        ),
        script_name="",
        submitter=ProcessId(host="", pid=0, start=0.0, boot=""),
        file=tmp_path / "log.txt",
    )
    hook = hook_of("llmb_parse")
    assert hook(run.log, run).steps == ()
    (tmp_path / "result.json").write_text(json.dumps({"latency": [1.5, 2.5, 3.5]}))
    assert [step.values["latency"] for step in hook(run.log, run).steps] == [1.5, 2.5, 3.5]
    assert (hook(run.log, run).last, hook(run.log, None).last) == (2, None)


def test_llmb_flops() -> None:
    """By hand: 2 layers, hidden 8, vocabulary 8, sequence 8."""
    flops = hook_of("llmb_flops")(SMALLEST_MODEL)
    assert flops.terms == {"layers": 6 * 8 * 2 * 12 * 8 * 8, "head": 6 * 8 * 8 * 8}


def test_llmb_settings() -> None:
    (text,) = examples("llmb_settings")
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(text, str(PAGE), "exec"), names)
    settings = names["llmb_settings"]()
    (task,) = names["llmb_setup"](replace(SITE, own_settings=settings(folder="/scratch"))).needs
    assert task.argv == ("mkdir", "-p", "/scratch")


def test_llmb_frameworks() -> None:
    """The example trains the workload beside it on the page."""
    (text,) = re.findall(
        r"^```yaml\n(.*?)^```$", section("llmb_frameworks"), re.DOTALL | re.MULTILINE
    )
    (framework,) = hook_of("llmb_frameworks")()
    document = yamlfile.parse(text, name="acme.yaml")
    workload = typed.read(api.Workload, document).known_to({framework.name: framework})
    assert workload.framework == "titan"
    assert (workload.sizes["1b"].recipe.flavor, workload.sizes["1b"].recipe.compile) == ("1B", True)
    job = replace(SMALLEST_JOB, model_size="1b", max_steps=50)
    command = framework.launch(workload, job, SITE)
    assert command.program.module == "titan.train"
    layout = ("--tp=1", "--pp=1", "--mbs=1", "--gbs=1")
    assert command.args == ("--flavor=1B", *layout, "--steps=50")
    image = api.Image(reference="registry.example.com/titan:1.2")
    assert framework.needs(workload, SITE).needs == (image,)


def test_llmb_clusters() -> None:
    (kind,) = hook_of("llmb_clusters")()
    assert (kind.name, kind.create, with_source(kind, "a:b").source) == (
        "acme",
        "llmb_acme.cluster:create",
        "a:b",
    )


def test_llmb_commands() -> None:
    (command,) = hook_of("llmb_commands")()
    runs = [SimpleNamespace(job=replace(SMALLEST_JOB, scale=scale)) for scale in (8, 16)]
    done = CliRunner().invoke(command, obj=SimpleNamespace(runs=lambda: runs))
    assert (done.exit_code, done.output) == (0, "24\n")


def test_llmb_failures() -> None:
    (failure,) = hook_of("llmb_failures")()
    assert failure.fits(b"[rank3]: acme: licence expired on n7")


def test_llmb_report() -> None:
    hook = hook_of("llmb_report")
    assert hook([{"experiment": "a", "ratio": None}, {"experiment": "b", "ratio": 0.99}]) == []
    (section,) = hook([{"experiment": "c", "ratio": 0.8}])
    assert section.rows == (("c", 0.8),)


def test_llmb_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = hook_of("llmb_nodes")
    monkeypatch.setattr(Path, "read_text", lambda _: "n1\nn2\n")
    assert (hook("drained"), hook("suspects")) == (["n1", "n2"], None)


def test_llmb_log_settings(tmp_path: Path) -> None:
    hook = hook_of("llmb_log_settings")
    assert hook(tmp_path / "log.out") is None
    (tmp_path / "acme.json").write_text('{"benchmark": "disk", "case": "write", "gpus": 8}')
    assert hook(tmp_path / "log.out") == api.LogSettings(workload="disk", size="write", gpus=8)


def test_llmb_import(tmp_path: Path) -> None:
    hook = hook_of("llmb_import")
    assert hook(tmp_path) is None
    site = {"release": "7", "gpu": "h100", "partition": "gpu", "variables": {"NCCL_DEBUG": "WARN"}}
    (tmp_path / "acme-site.json").write_text(json.dumps(site))
    (tmp_path / "a.sqsh").touch()
    found = hook(tmp_path)
    assert (found.tool, found.release, found.gpu_type) == ("Acme's acme-bench", "7", "h100")
    assert (found.gpu, found.images) == ({"partition": "gpu"}, {tmp_path / "a.sqsh": ""})


def test_llmb_variables() -> None:
    variables = {variable.name: variable for variable in hook_of("llmb_variables")()}
    gpus, steps, queue = (variables[f"ACME_{name}"] for name in ("GPUS", "STEPS", "QUEUE"))
    assert (gpus.value("16"), steps.value("100")) == ((16,), 100)
    assert steps.hint("100", of_list=True) == "write max_steps: 100"
    assert queue.hint("x", of_list=False) == "omit it: --partition NAME"


def test_llmb_job_list() -> None:
    hook = hook_of("llmb_job_list")
    assert hook("jobs.txt", "pretrain_x:\n") is None
    listed = hook("jobs.csv", "workload,gpus\nnemotron4_15b,16\nnemotron4_15b,x\n")
    (entry,), (fault,) = listed.entries, listed.faults
    assert [settings.scale for settings in entry.expand()] == [16]
    assert (entry.place, fault.place) == ("jobs.csv:2", "jobs.csv:3")


def test_llmb_hint() -> None:
    hook = hook_of("llmb_hint")
    assert (hook("acme-night"), hook("results")) == ("write: llmb-run submit", None)
