# SPDX-License-Identifier: Apache-2.0
"""Tests of what `plugins check` finds in hooks and in sample logs, by code and place."""

import gzip
import itertools
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.check.cluster_trial import cluster_faults
from llmb.check.log_trial import sample_faults, undeclared
from llmb.check.scaffold import CLUSTER, FILES, WITH_WORKLOAD, scaffold
from llmb.check.workload_trial import faults_of
from llmb.core.files import write_folder
from llmb.errors import Fault
from llmb.plugins.loader import add_file, load_plugins

Faults = Callable[..., list[Fault]]
_NUMBERS = itertools.count()


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Faults:
    """The faults of a new plugin whose ``file`` has ``new`` in the place of ``old``."""

    def find(kind: str, file: str = "", old: str = "", new: str = "") -> list[Fault]:
        # another package in each test
        write_folder(tmp_path / "plugin", scaffold(f"x{next(_NUMBERS)}", kind))
        package = next((tmp_path / "plugin").glob("llmb_*"), tmp_path / "plugin")
        if file:
            text = (package / file).read_text("utf-8")
            assert old in text
            (package / file).write_text(text.replace(old, new), "utf-8")
        monkeypatch.syspath_prepend(tmp_path / "plugin")
        entry = EntryPoint(name="x", value=package.name, group="llmb")
        plugins = load_plugins(builtin_plugins(), entries=[] if kind in FILES else [entry])
        if kind in FILES:
            add_file(plugins, package / "benchmark.yaml")
        (workload,) = plugins.workloads().values()
        return [*faults_of(workload, plugins), *sample_faults(workload, plugins)]

    return find


@pytest.mark.parametrize("kind", WITH_WORKLOAD)
def test_a_new_plugin_has_no_faults(kind: str, faults: Faults) -> None:
    assert faults(kind) == []


@pytest.mark.parametrize(
    ("kind", "file", "old", "new", "code", "key"),
    [
        (
            "program",
            "__init__.py",
            'start="once",',
            "start='once', environment={'A': str(__import__('time').time_ns())},",
            "hook-impure",
            "launch",
        ),
        ("program", "__init__.py", "job.max_steps", "job.most_steps", "plugin-failed", "launch"),
        ("program", "sample_log.txt", "bandwidth=", "bandwith=", "headline-missing", "sample_log"),
        (
            "program",
            "workload.yaml",
            "sample_log.txt",
            "sample.txt",
            "sample-missing",
            "sample_log",
        ),
        (
            "program",
            "workload.yaml",
            "sample_log.txt}",
            "sample_log.txt, size: wrte}",
            "size-unknown",
            "sample_log",
        ),
        ("metric", "__init__.py", "best of 5", "best of 3", "headline-missing", "sample_log"),
        ("metric", "__init__.py", 'needle="usec per loop"', 'needle=""', "needle-empty", "needle"),
        ("yaml", "benchmark.yaml", "usec per", "usecs per", "headline-missing", "sample_log"),
        ("metric", "workload.yaml", "unit: us,", "unit: ms,", "log-unreadable", "sample_log"),
        (
            "workload",
            "sample_log.txt",
            "train_step_timing in s",
            "train_step in s",
            "headline-missing",
            "sample_log",
        ),
    ],
)
def test_faults(
    kind: str, file: str, old: str, new: str, code: str, key: str, faults: Faults
) -> None:
    found = faults(kind, file, old, new)
    assert [fault.code for fault in found] == [code]
    assert key in found[0].key
    assert found[0].hint


def test_without_a_sample_the_hook_is_still_called(faults: Faults) -> None:
    found = faults("metric", "workload.yaml", "sample_log: {file: sample_log.txt}\n", "")
    assert found == []


def test_a_parser_that_fails_without_a_log(faults: Faults, tmp_path: Path) -> None:
    """The run has just begun: its log does not exist yet."""
    old = 'def llmb_parse() -> "api.ParseSpec":\n'
    (fault,) = faults(
        "metric",
        "__init__.py",
        old,
        'def llmb_parse(run: "api.RunRecord"):\n    run.log.read_text()\n',
    )
    assert (fault.code, fault.key) == ("plugin-failed", "llmb_parse")


def test_names_that_no_metric_has(tmp_path: Path) -> None:
    plugins = load_plugins(builtin_plugins())
    workload = plugins.workloads()["microbench"]
    log = tmp_path / "log.txt"
    text = (
        "llmb step 0/1 busbw=3 buswb=4 step_time=1 note: none at 12:30\nother busb=3\nllmb step 1/1"
        " lat: 3\n"
    )
    for data in (text.encode(), gzip.compress(text.encode())):
        log.write_bytes(data)
        assert undeclared(workload, log) == {
            "buswb": "did you mean 'busbw'?",
            "lat": "did you mean 'latency'?",
        }
    # a folder cannot be read, nor can another user's log
    assert undeclared(workload, tmp_path) == {}


@pytest.mark.parametrize(
    ("old", "new", "code", "key"),
    [
        ("", "", "", ""),
        ("job=stamp.id", "job=str(__import__('time').time_ns())", "hook-impure", "render"),
        ("return api.node_script(", "return len(", "plugin-failed", "render"),
        ("    def poll(", "    def pull(", "method-missing", "poll"),
        ("def create(", "def make(", "plugin-failed", "create"),
    ],
)
def test_faults_of_a_cluster_type(
    old: str, new: str, code: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "plugin", scaffold(f"x{next(_NUMBERS)}", CLUSTER))
    (module,) = (tmp_path / "plugin").glob("llmb_*/cluster.py")
    module.write_text(
        module.read_text("utf-8").replace(old, new, 1) if old else module.read_text("utf-8"),
        "utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path / "plugin")
    entry = EntryPoint(name="x", value=module.parent.name, group="llmb")
    plugins = load_plugins(builtin_plugins(), entries=[entry])
    found = list(cluster_faults(plugins.cluster_types().values()))
    assert plugins.problems == []
    assert [(fault.code, fault.key) for fault in found] == ([(code, key)] if code else [])
