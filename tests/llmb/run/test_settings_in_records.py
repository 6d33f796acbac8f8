# SPDX-License-Identifier: Apache-2.0
"""Tests that a record has the framework's settings as they were given: each value and its type."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from llmb.contract import record
from llmb.contract.record import RunRecord
from llmb.core import typed
from llmb.errors import InputFaults
from llmb.measure.description import Configuration, configuration_of
from llmb.plan import yaml_joblist

Command = Callable[..., "subprocess.CompletedProcess[str]"]

numbers = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
values = st.none() | st.booleans() | numbers | texts


@pytest.fixture
def run(make_install: Callable[..., Any]) -> RunRecord:
    made: RunRecord = make_install().measured("a1", 2.5)
    return made


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(chosen=st.dictionaries(st.sampled_from(["train.a", "model.b", "ddp.c"]), values))
@example(chosen={"train.a": 100, "model.b": 100.0, "ddp.c": True})
@example(chosen={"train.a": "100", "model.b": "nan", "ddp.c": "1e-4"})
@example(chosen={"train.a": 2**63, "model.b": -(2**63), "ddp.c": -0.0})
@example(chosen={"train.a": 5e-324, "model.b": -1.7976931348623157e308, "ddp.c": None})
def test_a_record_reads_back_what_was_written(chosen: dict[str, Any], run: RunRecord) -> None:
    record.save(replace(run, job=replace(run.job, dotted=chosen)))
    read = record.load(run.directory).job
    assert repr(dict(read.dotted)) == repr(chosen)
    own = configuration_of(read)
    again = typed.read_own(Configuration, Path("x"), json.loads(json.dumps(typed.own_data(own))))
    assert repr(again) == repr(own)


@pytest.mark.parametrize("written", ["100", "-3", "1.5", "true", "null", "9223372036854775808"])
def test_a_job_list_takes_what_set_takes(
    written: str, llmb_here: Command, cluster: Callable[..., Path], tmp_path: Path
) -> None:
    install, listed = cluster(), tmp_path / "jobs.yaml"
    listed.write_text(
        "pretrain_llama3.1_70b:\n  scales: [64]\n  defaults: {framework: bridge,"
        f" params: {{train.manual_gc_interval: {written}}}}}\n"
    )
    words = ("--dry-run", "--format", "json", "--install", install)
    single = ("single", "-w", "llama3.1", "-s", "70b", "--scale", 64, "--framework", "bridge")
    results = [
        llmb_here("submit-all", listed, *words),
        llmb_here(*single, "--set", f"train.manual_gc_interval={written}", *words),
    ]
    for done in results:
        assert done.returncode == 0, done.stderr
        (job,) = json.loads(done.stdout)["jobs"]
        assert repr(job["dotted"]["train.manual_gc_interval"]) == repr(json.loads(written))


@pytest.mark.parametrize("written", ["NaN", "Infinity", "1e999", str(10**40)])
def test_a_number_that_no_record_can_hold_is_refused(
    written: str, llmb_here: Command, cluster: Callable[..., Path]
) -> None:
    words = ("--framework", "bridge", "--set", f"train.x={written}", "--install", cluster())
    done = llmb_here("single", "-w", "llama3.1", "-s", "70b", "--scale", 64, "--dry-run", *words)
    assert done.returncode == 2
    assert f"--set train.x={written}" in done.stderr


@pytest.mark.parametrize("written", [".nan", ".inf", str(10**40)])
def test_a_list_with_such_a_number_is_refused(written: str, tmp_path: Path) -> None:
    listed = tmp_path / "jobs.yaml"
    listed.write_text(
        f"pretrain_llama3.1_70b:\n  scales: [64]\n  defaults: {{params: {{train.x: {written}}}}}\n"
    )
    read = yaml_joblist.read(listed)
    assert [fault.place for fault in read.faults] == [f"{listed}:3"]


def test_a_list_with_a_nul_character_is_refused(tmp_path: Path) -> None:
    listed = tmp_path / "jobs.yaml"
    listed.write_text(
        'pretrain_llama3.1_70b:\n  scales: [64]\n  defaults: {params: {train.x: "a\\0b"}}\n'
    )
    with pytest.raises(InputFaults) as error:
        yaml_joblist.read(listed)
    assert [fault.place for fault in error.value.faults] == [f"{listed}:3"]
