# SPDX-License-Identifier: Apache-2.0
"""Tests of what a plugin reads of a log by itself: what no run can measure names plugin, hook,
field and value.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest

from llmb import api
from llmb.check.log_trial import sample_faults
from llmb.errors import KeyFaultError
from llmb.plugins.answers import check_complete, check_samples
from llmb.plugins.loaded import Plugins

METRICS = (
    api.MetricSpec(name="latency", unit="ms", better="lower"),
    api.MetricSpec(name="gain", unit="%"),
)
GOOD = api.Samples(
    steps=tuple(
        api.Step(iteration=i, step_time=nan, values={"latency": 2.0, "gain": -1.0})
        for i in range(4)
    ),
    last=3,
)
Check = Callable[[api.Samples, tuple[api.MetricSpec, ...]], None]


def with_step(number: int, **more: object) -> api.Samples:
    steps = [*GOOD.steps]
    steps[number] = replace(steps[number], **more)  # type: ignore[arg-type]
    return replace(GOOD, steps=tuple(steps))


IMPOSSIBLE = [
    (with_step(1, step_time=-0.5), ("steps", 1, "step_time"), -0.5),
    (with_step(1, step_time=inf), ("steps", 1, "step_time"), inf),
    (with_step(2, iteration=1), ("steps", 2, "iteration"), 1),
    (with_step(3, iteration=0), ("steps", 3, "iteration"), 0),
    (with_step(0, iteration=-1), ("steps", 0, "iteration"), -1),
    (with_step(0, span=0), ("steps", 0, "span"), 0),
    (with_step(2, values={"latency": -2.0, "gain": 1.0}), ("steps", 2, "values", "latency"), -2.0),
    (replace(GOOD, last=1), ("last",), 1),
    (replace(GOOD, gbs=0), ("gbs",), 0),
    (replace(GOOD, peak_memory=-1.0), ("peak_memory",), -1.0),
]
INCOMPLETE = [
    (api.Samples(), ("steps",), ()),
    (with_step(2, values={"latency": nan, "gain": 1.0}), ("steps", 2, "values", "latency"), nan),
    (with_step(2, values={"latency": inf, "gain": 1.0}), ("steps", 2, "values", "latency"), inf),
    (with_step(3, values={"latency": 1.0}), ("steps", 3, "values", "gain"), None),
    (with_step(3, loss=nan), ("steps", 3, "loss"), nan),
]


@pytest.mark.parametrize(
    ("check", "samples", "path", "value"),
    [(check_samples, *one) for one in IMPOSSIBLE] + [(check_complete, *one) for one in INCOMPLETE],
)
def test_samples_that_cannot_be(
    check: Check, samples: api.Samples, path: tuple[object, ...], value: object
) -> None:
    with pytest.raises(KeyFaultError) as caught:
        check(samples, METRICS)
    assert caught.value.path == path
    assert repr(caught.value.value) == repr(value)
    assert caught.value.hint


def test_samples_that_can_be() -> None:
    """A run may measure nan, and a log that has just begun is empty; a sample log has neither."""
    check_samples(GOOD, METRICS)
    check_complete(GOOD, METRICS)
    for samples, *_ in INCOMPLETE:
        check_samples(samples, METRICS)


READS = """
from pathlib import Path
from llmb.api import Samples, Step, hookimpl, read_workload

@hookimpl
def llmb_workload():
    return read_workload(Path(__file__).with_name("{module}.yaml"))

@hookimpl
def llmb_parse(run):
    values = [float(word) for word in run.log.read_text().split()] if run.log.exists() else []
    return Samples(steps=tuple(Step(iteration=i, step_time=value) for i, value in enumerate(values)))
"""


@pytest.mark.parametrize(
    ("text", "code", "key"),
    [
        ("1 2 -3", "value-not-allowed", "steps.2.step_time"),
        ("1 nan 3", "value-not-allowed", "steps.1.step_time"),
        ("", "steps-missing", "steps"),
        ("1 2 3", None, None),
    ],
)
def test_the_check_of_a_plugin_names_plugin_hook_field_and_value(
    text: str,
    code: str | None,
    key: str | None,
    install: Callable[..., str],
    load: Callable[[], Plugins],
    site_packages: Path,
) -> None:
    source = install("own", READS, key="pretrain_own")
    (site_packages / "sample.txt").write_text(text)
    table = site_packages / "fake_own.yaml"
    table.write_text(table.read_text() + "sample_log: {file: sample.txt}\n")
    plugins = load()
    found = list(sample_faults(plugins.workloads()["pretrain_own"], plugins))
    assert [(fault.code, fault.key) for fault in found] == (
        [(code, key)] if code is not None else []
    )
    for fault in found:
        assert (fault.place, "llmb_parse" in fault.message) == (source, True)


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        ("true", "a tuple of one text has a comma: ('true',)"),
        ("dd if=x", "one text for each word: ('dd', 'if=x')"),
    ],
)
def test_a_text_in_the_place_of_words_has_the_tuple_that_was_meant(argv: str, hint: str) -> None:
    with pytest.raises(KeyFaultError) as caught:
        api.Task(name="x", argv=argv)  # type: ignore[arg-type]
    assert caught.value.hint == hint
