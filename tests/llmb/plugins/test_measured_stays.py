# SPDX-License-Identifier: Apache-2.0
"""Tests that what a plugin's own reading measured outlives the plugin, its files and the log.

The plugin is that of docs/write-a-plugin.md: its steps have no time, so ``step_time`` is nan.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.contract import record
from llmb.measure.summary import EARLIER, LOG_GONE, SUMMARY

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]


class Measured:
    """One successful run of the documented plugin ``requests``, and commands that read it."""

    def __init__(self, llmb: Command, install: Path, plugins: Path, state: Path) -> None:
        self.command, self.install, self.state = llmb, install, state
        self.installed = {"PYTHONPATH": str(plugins)}
        self.plugin: dict[str, str] = self.installed
        done = self.llmb("single", "-w", "requests", "-s", "files", "--scale", 1, "--wait")
        assert done.returncode == 0, done.stderr
        (path,) = install.glob("workloads/*/experiments/*/*/llmb-run.json")
        self.run = record.load(path.parent)

    def llmb(
        self, *words: object, where: tuple[object, ...] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        place = ("--install", self.install) if where is None else where
        return self.command(*words, *place, LLMB_STATE_DIR=str(self.state), **self.plugin)

    def result(self, *words: object, where: tuple[object, ...] | None = None) -> dict[str, Any]:
        done = self.llmb("results", "--format", "json", *words, where=where)
        (row,) = json.loads(done.stdout)["results"]
        return dict(row)

    def uninstall(self) -> None:
        self.plugin = {}

    def delete_log(self) -> None:
        self.run.log.unlink()

    def delete_figures(self) -> None:
        (self.run.work / "result.json").unlink()


@pytest.fixture
def measured(
    llmb_run: Command, documented_plugins: Path, tmp_path: Path, cluster: Cluster
) -> Measured:
    install = cluster("local", "cpu", workloads={"installed": ["requests"]})
    return Measured(llmb_run, install, documented_plugins, tmp_path / "state")


def figures(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in row if key not in ("reason", "path")}


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ("uninstall", ""),
        ("delete_log", LOG_GONE),
        ("uninstall delete_log", LOG_GONE),
        ("delete_figures", EARLIER),
        ("delete_figures delete_log", LOG_GONE),
    ],
)
def test_a_success_stays_one_and_is_not_retried(
    changes: str, note: str, measured: Measured
) -> None:
    first = measured.result()
    assert (first["status"], first["headline"]) == ("Success", "latency")
    for change in changes.split():
        getattr(measured, change)()
    for _ in range(2):
        again = measured.result()
        assert figures(again) == figures(first)
        assert note in (again["reason"] or "")
    measured.llmb("jobs", "retry", "--failed")
    assert record.load(measured.run.directory).attempt == 1
    measured.plugin = measured.installed
    assert figures(measured.result()) == figures(first)


def test_its_file_is_strict_json(measured: Measured) -> None:
    measured.result()

    def refuse(word: str) -> None:
        raise AssertionError(word)

    data = json.loads((measured.run.place / SUMMARY).read_text(), parse_constant=refuse)
    assert data["reader"]["spec"]["samples"]["steps"][0]["step_time"] == "nan"


@pytest.mark.parametrize("has_log", [True, False])
@pytest.mark.parametrize("has_plugin", [True, False])
def test_an_archive_has_what_was_measured(
    has_log: bool, has_plugin: bool, measured: Measured, tmp_path: Path
) -> None:
    first = measured.result()
    if not has_log:
        measured.delete_log()
        measured.delete_figures()
    archive = tmp_path / "night.tar.zst"
    assert measured.llmb("archive", "-o", archive).returncode == 0
    shutil.rmtree(measured.install / "workloads")
    if not has_plugin:
        measured.uninstall()
    assert figures(measured.result(archive, where=())) == figures(first)


def test_another_window_needs_no_plugin_and_no_log(measured: Measured) -> None:
    window = measured.result("--window", "3-5")
    measured.result()
    measured.uninstall()
    measured.delete_log()
    assert figures(measured.result("--window", "3-5")) == figures(window)
