# SPDX-License-Identifier: Apache-2.0
"""The table of what plugins may do wrong: each is one line that names the plugin, and everything
else works.
"""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmb.cli import app
from llmb.plugins.loaded import Plugins

Install = Callable[..., str]
Command = Callable[..., subprocess.CompletedProcess[str]]
LIMIT = "1"  # seconds that a plugin may take here, llmb's own too
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

HOOK = "from llmb.api import hookimpl\n"
WORKLOAD = (
    HOOK
    + """
from pathlib import Path
from llmb.api import read_workload

@hookimpl
def llmb_workload():
    return read_workload(Path(__file__).with_name("{module}.yaml"))
"""
)
LAUNCH = (
    WORKLOAD
    + "\n@hookimpl\ndef llmb_launch(job, site):\n    from llmb.api import Launch, Program\n    "
)
GOOD = (
    "dict(name=job.experiment_name, nodes=1, ranks_per_node=1, time_limit=60,"
    " program=Program(argv=('true',)))"
)


@dataclass(frozen=True, kw_only=True)
class Bad:
    """A bad plugin: its ``code``, the error's ``kind``, and where it shows: load, launch, parse, or
    ask.

    ``ask``: only where plugins are asked for cluster types, as the configuration has one of llmb's
    own.
    """

    code: str
    kind: str
    shows: str = "load"
    key: str | None = None  # of its workload
    yaml: tuple[str, str] = ("", "")  # an edit of the workload's YAML


# Each row of the table by its name.
TABLE = {
    "an empty needle": Bad(
        code=WORKLOAD + "\n@hookimpl\ndef llmb_parse():\n    from llmb.api import ParseSpec\n"
        "    return ParseSpec(needle='')\n",
        kind="needle-empty",
        shows="parse",
    ),
    "a pattern without its group": Bad(
        code=WORKLOAD + "\n@hookimpl\ndef llmb_parse():\n    from llmb.api import ParseSpec\n"
        "    return ParseSpec(iteration=r'step (\\d+)')\n",
        kind="group-missing",
        shows="parse",
    ),
    "a number for a text, in a log's format": Bad(
        code=WORKLOAD + "\n@hookimpl\ndef llmb_parse():\n    from llmb.api import ParseSpec\n"
        "    return ParseSpec(needle=5)\n",
        kind="value-type",
        shows="parse",
    ),
    "an unknown key in workload.yaml": Bad(
        code=WORKLOAD,
        yaml=("default_dtype", "defualt_dtype"),
        kind="plugin-failed",
        key="pretrain_bad",
    ),
    "a text for a number in workload.yaml": Bad(
        code=WORKLOAD, yaml=("layers: 2", "layers: two"), kind="plugin-failed", key="pretrain_bad"
    ),
    "a number for a text in a launch": Bad(
        code=LAUNCH + f"return Launch(**{{{{**{GOOD}, 'args': ('--steps', 50)}}}})\n",
        kind="value-type",
        shows="launch",
    ),
    "../ in the key": Bad(
        code=WORKLOAD,
        yaml=("key: pretrain_bad", "key: ../bad"),
        kind="plugin-failed",
        key="pretrain_bad",
    ),
    "../ in a size": Bad(
        code=WORKLOAD, yaml=("  tiny:", "  ../tiny:"), kind="plugin-failed", key="pretrain_bad"
    ),
    "../ in a launch's name": Bad(
        code=LAUNCH + f"return Launch(**{{{{**{GOOD}, 'name': '../x'}}}})\n",
        kind="name-invalid",
        shows="launch",
    ),
    "../ in a staged file": Bad(
        code=LAUNCH + "from llmb.api import StagedFile\n"
        f"    return Launch(**{GOOD}, files=(StagedFile(name='../x', text=''),))\n",
        kind="file-outside",
        shows="launch",
    ),
    "an unknown hook": Bad(
        code=HOOK + "@hookimpl\ndef llmb_lunch(job): ...\n", kind="hook-unknown"
    ),
    "raises at import": Bad(code="raise RuntimeError('no\\nlicence')\n", kind="plugin-failed"),
    "sys.exit at import": Bad(code="import sys\nsys.exit('bye')\n", kind="plugin-failed"),
    "KeyboardInterrupt at import": Bad(code="raise KeyboardInterrupt\n", kind="plugin-failed"),
    "an endless loop at import": Bad(code="while True: pass\n", kind="plugin-timeout"),
    "a syntax error": Bad(code="def f(:\n", kind="plugin-failed"),
    "raises in a hook": Bad(
        code=LAUNCH + "return {{}}[job.scale]\n", kind="plugin-failed", shows="launch"
    ),
    "sys.exit in a hook": Bad(
        code=LAUNCH + "raise SystemExit(0)\n", kind="plugin-failed", shows="launch"
    ),
    "KeyboardInterrupt in a hook": Bad(
        code=LAUNCH + "raise KeyboardInterrupt\n", kind="plugin-failed", shows="launch"
    ),
    "a hook that hangs": Bad(
        code=LAUNCH + "import time\n    while True: time.sleep(60)\n",
        kind="plugin-timeout",
        shows="launch",
    ),
    "a hook that returns something else": Bad(
        code=LAUNCH + "return 'true'\n", kind="answer-type", shows="launch"
    ),
    "a hook of llmb_commands that hangs": Bad(
        code=HOOK
        + "@hookimpl\ndef llmb_commands():\n    import time\n    while True: time.sleep(60)\n",
        kind="plugin-timeout",
    ),
    "the key of a workload of llmb": Bad(
        code=WORKLOAD, key="pretrain_nemotron4", kind="workload-duplicate"
    ),
    "the name of a command of llmb": Bad(
        code=HOOK
        + "@hookimpl\ndef llmb_commands():\n    import click\n    return [click.Command('list')]\n",
        kind="name-duplicate",
    ),
    "the name of a cluster type of llmb": Bad(
        code=HOOK + "@hookimpl\ndef llmb_clusters():\n    from llmb.api import ClusterType\n"
        "    return [ClusterType(name='local', create='a:b')]\n",
        kind="name-duplicate",
        shows="ask",
    ),
    "another definition of a GPU type": Bad(
        code=WORKLOAD,
        yaml=("sizes:", "gpu_types: {h100: {gpus_per_node: 4}}\nsizes:"),
        key="pretrain_bad",
        kind="gpu-type-conflict",
    ),
    "a newer contract": Bad(
        code="LLMB_CONTRACT = '99.0'\nfrom llmb.api import hookimpl, Teleport\n",
        kind="contract-newer",
    ),
    "an older contract": Bad(code="LLMB_CONTRACT = '0.9'\n" + HOOK, kind="contract-older"),
    "a number for the contract": Bad(code="LLMB_CONTRACT = 1.0\n" + HOOK, kind="contract-invalid"),
    "a wrapper of a hook that has nothing to wrap": Bad(
        code=HOOK + "@hookimpl(wrapper=True)\ndef llmb_commands():\n    return (yield)\n",
        kind="wrapper-misplaced",
    ),
    "a wrapper of pluggy's older form": Bad(
        code=HOOK + "@hookimpl(hookwrapper=True)\ndef llmb_launch(job):\n    yield\n",
        kind="wrapper-invalid",
    ),
    "a launch for the workloads of others": Bad(
        code=HOOK + "@hookimpl\ndef llmb_launch(job): ...\n", kind="workload-missing"
    ),
}


@pytest.fixture
def bad(request: pytest.FixtureRequest, install: Install, site_packages: Path) -> str:
    """Installs the plugin of a row; its source."""
    row: Bad = request.param
    needs_workload = row.key or ("pretrain_bad" if row.shows != "load" else None)
    source = install("bad", row.code, key=needs_workload)
    if needs_workload is not None:
        file = site_packages / "fake_bad.yaml"
        text = file.read_text()
        assert row.yaml[0] in text
        file.write_text(text.replace(*row.yaml))
    return source


@pytest.fixture
def folder(cluster: Callable[..., Path]) -> Path:
    """An install directory on this machine."""
    return cluster("local", "cpu")


def named_in(text: str, source: str) -> list[str]:
    """The lines that name the plugin."""
    return [line for line in text.splitlines() if source in line]


def all_else_works(llmb_here: Command, folder: Path) -> str:
    """Asserts that another workload is listed and planned as ever; returns what was printed beside
    the data.
    """
    listed = llmb_here("list", "--format", "json", "--install", folder)
    assert listed.returncode == 0
    assert {row["workload"] for row in json.loads(listed.stdout)} >= OURS
    planned = llmb_here(
        *(
            "single",
            "-w",
            "nemotron4",
            "-s",
            "tiny",
            "--scale",
            1,
            "--dry-run",
            "--format",
            "json",
            "--install",
            folder,
        )
    )
    assert planned.returncode == 0, planned.stderr
    (job,) = json.loads(planned.stdout)["jobs"]
    assert (job["workload"], job["model_size"]) == ("pretrain_nemotron4", "tiny")
    return f"{listed.stderr}{planned.stderr}"


@pytest.mark.parametrize(
    ("bad", "row"), [(row, row) for row in TABLE.values()], ids=[*TABLE], indirect=["bad"]
)
# the limit may pass in a callback of gc
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_bad_plugin_costs_itself_alone(
    bad: str,
    row: Bad,
    folder: Path,
    llmb_here: Command,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
    site_packages: Path,
    tmp_path: Path,
) -> None:
    if row.kind == "plugin-timeout":
        monkeypatch.setenv("LLMB_PLUGIN_TIMEOUT", LIMIT)
    messages, line = all_else_works(llmb_here, folder), ""
    if row.shows == "load":
        (line,) = set(named_in(messages, bad))
    if row.shows in ("load", "ask"):
        plugins: Plugins = app.load()
        plugins.workloads(), plugins.commands(), plugins.cluster_types()
        assert [(one.source, one.code) for one in plugins.problems] == [(bad, row.kind)]
        rows = json.loads(llmb_here("plugins", "--format", "json").stdout)
        (wrong,) = [one for one in rows if one["status"] != "ok"]
        assert wrong["plugin"] == bad
        line = line or f"{bad}: {wrong['reason']}"
    elif row.shows == "launch":
        asked = llmb_here(
            *("single", "-w", "bad", "-s", "tiny", "--scale", 1, "-d", "--install", folder)
        )
        assert (asked.returncode, asked.stdout) == (1, "")
        (line,) = [line for line in named_in(asked.stderr, bad) if line.startswith("error: ")]
    else:
        log = tmp_path / "log"
        log.write_text("step 1\n")
        asked = llmb_here("plugins", "check", "--log", log, "-w", "bad")
        assert (asked.returncode, asked.stdout) == (1, "")
        (line,) = named_in(asked.stderr, bad)
    wording("bad plugins", line, {str(site_packages): "<site-packages>"})


def test_a_plugin_that_prints_does_not_touch_the_data(
    install: Install, folder: Path, llmb_run: Command, site_packages: Path
) -> None:
    """Also what C code and subprocesses print, at import and in a hook; in a process of its own."""
    loud = (
        "import os, sys\nprint('LOUD python'); os.system('echo LOUD shell'); os.write(1, b'LOUD"
        " number\\n')\n"
    )
    loud += "sys.__stdout__.write('LOUD kept\\n')\n"
    inner = loud.replace("import os, sys\n", "import os, sys; ").replace("\n", "; ")
    code = loud + WORKLOAD.replace("    return", f"    {inner.rstrip('; ')}\n    return")
    install("loud", code, key="pretrain_loud")
    done = llmb_run("list", "--format", "json", PYTHONPATH=str(site_packages))
    assert done.returncode == 0
    assert {row["workload"] for row in json.loads(done.stdout)} >= {*OURS, "pretrain_loud"}
    assert [
        done.stderr.count(f"LOUD {kind}") for kind in ("python", "shell", "number", "kept")
    ] == [2, 2, 2, 2]


def test_a_launch_that_fails_says_how_to_submit_the_other_jobs(
    install: Install, folder: Path, llmb_here: Command, tmp_path: Path, wording: Callable[..., None]
) -> None:
    """Nothing of a list is submitted where a fault is found before; the others are, if that is
    asked for.
    """
    install("bad", LAUNCH + "raise KeyError('x')\n", key="pretrain_bad")
    jobs = tmp_path / "jobs.txt"
    jobs.write_text(
        "pretrain_nemotron4_tiny:\n(['fp32'], [1], 2)\n\npretrain_bad_tiny:\n(['fp32'], [1], 1)\n"
    )
    command = ("submit-all", jobs, "--dry-run", "--format", "json", "--install", folder)
    done = llmb_here(*command)
    assert (done.returncode, done.stdout) == (1, "")
    wording("submit-all", done.stderr)
    rest = llmb_here(*command, "--keep-going")
    assert (rest.returncode, len(json.loads(rest.stdout)["jobs"])) == (1, 2)
