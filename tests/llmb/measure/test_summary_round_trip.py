# SPDX-License-Identifier: Apache-2.0
"""Tests that every summary that is written is read back, whatever a plugin or a log says."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from llmb.contract.formats import ParseSpec
from llmb.contract.record import RunRecord
from llmb.contract.samples import Samples, Step
from llmb.core import files, own_files, typed
from llmb.measure import summary
from llmb.measure.reader import LogReader
from llmb.measure.result import Identity, Metrics, Result

floats = st.floats(allow_nan=True, allow_infinity=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
steps = st.builds(
    Step,
    iteration=st.integers(0, 2**40),
    step_time=floats,
    loss=st.none() | floats,
    tokens_rate=st.none() | floats,
    values=st.dictionaries(texts.map(lambda text: text.replace("\0", "")), floats, max_size=3),
)
samples = st.builds(
    Samples,
    steps=st.lists(steps, max_size=3).map(tuple),
    framework=st.none() | texts,
    peak_memory=st.none() | floats,
)


@pytest.fixture
def done(install: Any) -> RunRecord:
    run: RunRecord = install.measured("a1", 2.5)
    return run


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(read=samples, mean=floats, reason=texts)
def test_a_summary_is_read_back(read: Samples, mean: float, reason: str, done: RunRecord) -> None:
    result = Result(
        identity=Identity(experiment="e", path=str(done.log), run=done.id),
        status="Success",
        reason=reason,
        metrics=Metrics(model_flops=mean, flops_convention="x"),
    )
    reader = LogReader(spec=ParseSpec(samples=read))
    summary.keep(done, result, reader, mean, {str(done.log.relative_to(done.directory)): (1, 2)})
    kept = summary.load(done)
    assert kept is not None
    assert kept.reader is not None
    assert repr(kept.reader) == repr(without_nul(reader))
    assert same(kept.result.model_flops, mean)
    assert same(kept.peak_tflops, mean)
    assert kept.result.reason == reason.replace("\0", "\ufffd")


def same(number: float | None, other: float) -> bool:
    return number == other or (number is not None and math.isnan(number) and math.isnan(other))


def without_nul(reader: LogReader) -> LogReader:
    read = reader.spec.samples
    assert read is not None
    framework = read.framework and read.framework.replace("\0", "\ufffd")
    return LogReader(spec=replace(reader.spec, samples=replace(read, framework=framework)))


@pytest.mark.parametrize("careful", [True, False])
def test_both_readers_of_our_files_know_nan(careful: bool, tmp_path: Any, monkeypatch: Any) -> None:
    if careful:
        monkeypatch.setattr(own_files, "converter", lambda cls: lambda data: cls(**data["x"]))
    step = Step(iteration=1, step_time=math.nan, loss=-math.inf, tokens_rate=math.inf)
    path = tmp_path / "step.json"
    files.write_json(path, typed.own_data(step))
    assert repr(typed.read_own(Step, path, files.read_json(path))) == repr(step)
