# SPDX-License-Identifier: Apache-2.0
"""Fifty plugins of strangers, some of them hostile: every command works, and the list names them."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Install = Callable[..., str]

GOOD = """
from pathlib import Path
from llmb.api import hookimpl, read_workload

@hookimpl
def llmb_workload():
    return read_workload(Path(__file__).with_suffix(".yaml"))
"""
HOOK = "import os, sys, time\nfrom llmb.api import hookimpl\n@hookimpl\n"
# What each does, and whether all of it or a part is skipped.
HOSTILE = {
    "no_module": ("import no_such_module\n", "skipped"),
    "no_syntax": ("def (:\n", "skipped"),
    "leaves": ("import sys\nsys.exit(0)\n", "skipped"),
    "interrupts": ("raise KeyboardInterrupt\n", "skipped"),
    "recurses": ("def f(): f()\nf()\n", "skipped"),
    "no_hook": ("x = 1\n", "skipped"),
    "future": ("LLMB_CONTRACT = '99.0'\nfrom llmb.api import tomorrow\n", "skipped"),
    "wrong_hook": (f"{HOOK}def llmb_lunch(): ...\n", "skipped"),
    "hangs": (f"{HOOK}def llmb_workload(): time.sleep(600)\n", "skipped"),
    "no_workload": (f"{HOOK}def llmb_workload(): return 7\n", "skipped"),
    "prints": (
        f"print('x')\nos_text = 'y'\n{HOOK}def llmb_workload(): print(1); os.write(1, b'2')\n",
        "skipped",
    ),
    "fails": (f"{HOOK}def llmb_workload(): raise RuntimeError('no')\n", "skipped"),
    "steals_command": (
        f"import click\n{HOOK}def llmb_commands(): return [click.Command('list')]\n",
        "in part",
    ),
    "bad_types": (f"{HOOK}def llmb_clusters(): return 3\n", "in part"),
    "bad_commands": (f"{HOOK}def llmb_commands(): return [3]\n", "in part"),
}
GOODS = 50 - len(HOSTILE)


@pytest.fixture
def run(
    install: Install, llmb_program: str, site_packages: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs llmb-run as users do, with or without the fifty."""
    for number in range(GOODS):
        install(f"good{number}", GOOD, key=f"good_{number}")
    for name, (code, _) in HOSTILE.items():
        install(name, code)

    def run_command(*words: str, fifty: bool = True) -> subprocess.CompletedProcess[str]:
        variables: Mapping[str, str] = {"PYTHONPATH": str(site_packages)} if fifty else {}
        return subprocess.run(
            [llmb_program, *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LLMB_PLUGIN_TIMEOUT": "5", **variables},
        )

    return run_command


def test_fifty_plugins_of_strangers(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    with_fifty, without = run("--help"), run("--help", fifty=False)
    assert (with_fifty.returncode, with_fifty.stdout) == (0, without.stdout)

    listed = run("list", "--format", "json")
    assert listed.returncode == 0, listed.stderr
    workloads = {row["workload"] for row in json.loads(listed.stdout)}
    own = {
        row["workload"] for row in json.loads(run("list", "--format", "json", fifty=False).stdout)
    }
    assert workloads == own | {f"good_{number}" for number in range(GOODS)}
    for name, (_, status) in HOSTILE.items():
        if status == "skipped":
            assert listed.stderr.count(f"plugin {name}:entry is skipped") == 1, listed.stderr

    plugins = run("plugins", "list", "--format", "json")
    rows = {row["plugin"]: row for row in json.loads(plugins.stdout)}
    found = {name: rows[f"{name}:entry"]["status"] for name in HOSTILE}
    assert found == {name: status for name, (_, status) in HOSTILE.items()}
    assert all(rows[f"{name}:entry"]["reason"] for name in HOSTILE)
    assert {rows[f"good{number}:entry"]["status"] for number in range(GOODS)} == {"ok"}
