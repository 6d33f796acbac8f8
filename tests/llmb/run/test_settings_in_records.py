# SPDX-License-Identifier: Apache-2.0
"""Tests that a record has all settings as they were given: each value and its type."""

import json
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from llmb.contract import record, switches as sw
from llmb.contract.job import Job, Training
from llmb.contract.record import RunRecord
from llmb.contract.settings import COMPARED, SPLIT, Settings
from llmb.contract.switches import SettingValue
from llmb.core import typed
from llmb.errors import InputFaults
from llmb.plan import yaml_joblist

Command = Callable[..., "subprocess.CompletedProcess[str]"]

numbers = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
values = st.none() | st.booleans() | numbers | texts


@pytest.fixture
def run(make_install: Callable[..., Any]) -> RunRecord:
    made: RunRecord = make_install().measured("a1", 2.5)
    return made


# of texts with a form of their own, by what checks them
OF_CHECKS: Mapping[object, st.SearchStrategy[Any]] = {
    sw.rank_ranges: st.sampled_from(["all", "0-7", "0,8", "3"]),
    sw.parse_clock: st.sampled_from(["00:30:00", "100:00:01"]),
}
IMAGES = st.sampled_from(["nvcr.io/nvidia/nemo:25.09", "/i/é 1.sqsh"])
OF_FIELDS: Mapping[str, st.SearchStrategy[Any]] = {
    "image": st.none() | IMAGES,
    "mounts": st.none() | st.lists(st.sampled_from(["/a", "/a:/b:ro"])).map(tuple),
    "load_checkpoint": st.none() | texts.map("/{}".format),
}


def made_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return every value that a setting with this type hint can have."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint == SettingValue:
        return values
    if origin is Annotated:
        base = made_of(arguments[0])
        valid = base.filter(lambda value: passes(arguments[1], value))
        return OF_CHECKS.get(arguments[1], valid)
    if origin in (Union, UnionType):
        return st.one_of(*map(made_of, arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is Mapping:
        return st.dictionaries(texts, made_of(arguments[1]), max_size=2)
    if is_dataclass(hint):
        return all_of(hint)  # type: ignore[arg-type]
    return {
        int: st.integers(-(2**63), 2**63),
        str: texts,
        bool: st.booleans(),
        float: st.floats(),
        type(None): st.none(),
    }[hint]


def passes(check: Callable[[Any], object], value: Any) -> bool:
    try:
        check(value)
    except ValueError:
        return False
    return True


def all_of(cls: type, *, without: Collection[str] = ()) -> st.SearchStrategy[Any]:
    """Return values of a dataclass: each field has its default, or any value of its type."""
    hints = get_type_hints(cls, include_extras=True)
    fields_of = {
        name: OF_FIELDS[name] if name in OF_FIELDS else made_of(hint)
        for name, hint in hints.items()
        if name not in without
    }
    return st.fixed_dictionaries({}, optional=fields_of).map(
        (lambda chosen: chosen) if without else (lambda chosen: cls(**chosen))
    )


NESTED = ("training", "model", "image")  # made below, or checked in another way
jobs = all_of(Job, without=NESTED)
trainings = all_of(Training, without=NESTED)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(chosen=jobs, training=trainings)
@example(chosen={"dotted": {"train.a": 100, "model.b": 100.0, "ddp.c": True}}, training={})
@example(chosen={"dotted": {"train.a": "100", "model.b": "nan", "ddp.c": "1e-4"}}, training={})
@example(chosen={"dotted": {"a.a": 2**63, "a.b": -(2**63), "a.c": -0.0}}, training={})
@example(chosen={"dotted": {"a.a": 5e-324, "a.b": -1.7976931348623157e308}}, training={})
def test_a_record_reads_back_what_was_written(
    chosen: dict[str, Any], training: dict[str, Any], run: RunRecord
) -> None:
    own = replace(run.job, **chosen, training=replace(run.job.trained, **training))
    record.save(replace(run, job=own))
    assert repr(record.load(run.directory).job) == repr(own)


@settings(deadline=None)
@given(own=all_of(Settings))
def test_a_result_has_the_settings_that_were_written(own: Settings) -> None:
    data = json.loads(json.dumps(typed.own_data(own)))
    assert list(data) == list(COMPARED)
    again = typed.read_own(Settings, Path("x"), data)
    for name in COMPARED:
        assert repr(getattr(again, name)) == repr(getattr(own, name)), name


#: The job of a record as version 0.1.0 wrote it before there were Settings, with fewer keys.
RECORDED: dict[str, Any] = {
    **{"workload": "w", "model_size": "s", "dtype": "fp8", "gpu_type": "h100", "scale": 16},
    **{"repeat": 2, "profile": False, "env": {"A": "1"}, "max_steps": 50, "nodes": 2},
    **{"gpus_per_node": 8, "time_limit": 1200, "image": "x:1", "experiment_name": "w_s"},
    "training": {
        "model": {
            **{"architecture": "llama", "layers": 4, "hidden": 64, "ffn": 128, "heads": 16},
            **{"kv_groups": 8, "vocab": 100, "seq_length": 64},
        },
        **{"tp": 2, "pp": 1, "cp": 1, "vp": None, "ep": 1, "dp": 8, "mbs": 2, "gbs": 64, "ga": 4},
        **{"seq_length": 64, "num_layers": 4, "learning_rate": 0.0003, "etp": 2},
    },
    "parameters": {},
    "switches": {"fp8": "current", "tokenizer": "null", "save_checkpoint": True},
    **{"vboost": True, "framework": "nemo", "release": None, "rows_of": None, "dotted": {}},
}


def test_a_record_of_before_has_settings(run: RunRecord) -> None:
    path = run.directory / record.RECORD
    data = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**data, "job": RECORDED}), encoding="utf-8")
    own = record.load(run.directory).settings
    assert {name: value for name, value in own.unparse().items() if value} == {
        **{name: RECORDED[name] for name in ("workload", "model_size", "dtype", "gpu_type")},
        **{"scale": 16, "env": {"A": "1"}, "gpus_per_node": 8, "image": "x:1", "gbs": 64},
        **{"tp": 2, "pp": 1, "cp": 1, "ep": 1, "etp": 2, "mbs": 2, "seq_length": 64},
        **{"num_layers": 4, "fp8": "current", "saves": True, "vboost": True, "framework": "nemo"},
    }


def test_every_setting_of_a_job_is_in_its_settings(run: RunRecord) -> None:
    own = run.settings
    assert own.software == run.software
    for name in COMPARED:
        if hasattr(run.job, name):
            assert getattr(own, name) == getattr(run.job, name), name
    assert {name: getattr(own, name) for name in SPLIT} == {
        name: getattr(run.job.trained, name) for name in SPLIT
    }


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
