# SPDX-License-Identifier: Apache-2.0
"""Tests of lines with declared metrics: llmb's own line, a plugin's, the iteration on either side
of the needle.
"""

import gzip
import math
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from llmb.contract.formats import ParseSpec
from llmb.contract.samples import Samples
from llmb.core.scan import REACH
from llmb.measure import log_lines
from llmb.measure.log_lines import PatternError, SlowPatternError
from llmb.measure.log_reader import read_log, read_on

OWN = ParseSpec(metrics=("busbw", "latency"))
BEFORE = ParseSpec(
    needle="bandwidth",
    iteration=r"round (?P<i>\d{1,9}) of (?P<last>\d{1,9})",
    keys={"busbw": "bandwidth", "latency": "lat"},
    units={"latency": 1e6},
    first_iteration=1,
    metrics=("busbw", "latency"),
)
AFTER = ParseSpec(
    needle="bandwidth",
    iteration=r"\(round (?P<i>\d{1,9})\)",
    keys={"busbw": "bandwidth", "latency": "lat"},
    metrics=("busbw", "latency"),
)


def read(tmp_path: Path, text: str | bytes, spec: ParseSpec = OWN) -> Samples:
    path = tmp_path / "log-x.out"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_log(path, spec)


def values(samples: Samples) -> list[tuple[int, dict[str, float]]]:
    return [(step.iteration, dict(step.values)) for step in samples.steps]


def own_lines(count: int = 20) -> str:
    return "".join(
        f"llmb step {n}/{count - 1} busbw={480 + n}.5 latency={35 - n / 10:g}\n"
        for n in range(count)
    )


def test_llmbs_own_line(tmp_path: Path) -> None:
    found = read(tmp_path, own_lines())
    assert values(found)[3] == (3, {"busbw": 483.5, "latency": 34.7})
    assert (found.last, found.is_complete, found.attempts, found.first) == (19, True, 1, 0)
    assert all(math.isnan(step.step_time) for step in found.steps)


def test_it_may_have_a_step_time_and_other_text(tmp_path: Path) -> None:
    line = (
        "[default0]:\x1b[32m12:00 llmb step 0/1 step_time=0.25 busbw: 4.8e2 other=3 latency = 35.1"
        " done\x1b[0m\n"
    )
    (step,) = read(tmp_path, line).steps
    assert (step.step_time, dict(step.values)) == (0.25, {"busbw": 480.0, "latency": 35.1})


def test_without_declared_metrics_it_is_no_step(tmp_path: Path) -> None:
    assert read(tmp_path, own_lines(), ParseSpec()).steps == ()


def test_a_training_log_may_have_further_metrics_in_lines_of_their_own(tmp_path: Path) -> None:
    text = "".join(
        f"Training epoch 0, iteration {n}/4 | train_step_timing in s: 2.5 | TFLOPS_per_GPU: 500\n"
        f"llmb step {n}/4 busbw={480 + n}\n"
        for n in range(5)
    )
    found = read(tmp_path, text)
    assert [(step.step_time, step.tflops, step.values["busbw"]) for step in found.steps] == [
        (2.5, 500.0, 480.0 + n) for n in range(5)
    ]
    assert found.attempts == 1


def test_metrics_of_one_step_in_two_lines(tmp_path: Path) -> None:
    text = "".join(f"llmb step {n}/2 busbw={n}\nllmb step {n}/2 latency={n}\n" for n in range(3))
    found = read(tmp_path, text)
    assert values(found) == [(n, {"busbw": n, "latency": n}) for n in range(3)]
    assert found.attempts == 1


def test_the_last_attempt_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, own_lines(7) + own_lines(20).replace("busbw=4", "busbw=3"))
    assert (len(found.steps), found.attempts) == (20, 2)
    assert found.steps[0].values["busbw"] == 380.5


@pytest.mark.parametrize(
    ("text", "value"), [("nan", math.nan), ("inf", math.inf), ("-NaN", math.nan)]
)
def test_numbers_are_as_logged(tmp_path: Path, text: str, value: float) -> None:
    (step,) = read(tmp_path, f"llmb step 0/0 busbw={text} latency=1\n").steps
    assert step.values["busbw"] == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize(
    "line", ["llmb step 1/19\n", "llmb step 1/19 busbw=fast\n", "llmb step 1/19 busbw= , x=\n"]
)
def test_a_step_without_its_values_is_a_step_that_lacks_them(tmp_path: Path, line: str) -> None:
    found = read(tmp_path, "llmb step 0/19 busbw=1\n" + line)
    assert values(found) == [(0, {"busbw": 1.0}), (1, {})]


@pytest.mark.parametrize(
    "line",
    [
        "llmb step x/19 busbw=1\n",
        "llmb step 3 busbw=1\n",
        "llmb stop 3/19 busbw=1\n",
        "llmb step -3/19 busbw=1\n",
    ],
)
def test_what_is_no_step(tmp_path: Path, line: str) -> None:
    assert read(tmp_path, f"llmb {line} busbw=1\n").steps == ()


def test_a_file_that_ends_in_a_line_has_its_whole_values_alone(tmp_path: Path) -> None:
    whole = "llmb step 0/19 busbw=480.5 latency=35.1"
    assert values(read(tmp_path, "llmb step 0/1")) == []
    assert values(read(tmp_path, "llmb step 0/19")) == []
    assert values(read(tmp_path, "llmb step 0/19 busbw=48")) == []
    assert values(read(tmp_path, "llmb step 0/19 busbw=480.5 lat")) == [(0, {"busbw": 480.5})]
    assert values(read(tmp_path, whole)) == [(0, {"busbw": 480.5})]
    assert values(read(tmp_path, whole + "\n")) == [(0, {"busbw": 480.5, "latency": 35.1})]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (BEFORE, "round {n} of 3: bandwidth 480.5: bandwidth: {v}, lat: 35e-6 s\n"),
        (AFTER, "bandwidth: {v} GB/s, lat=35 (round {m})\n"),
        (AFTER, "gpu7 (round {m}) bandwidth: {v} GB/s, lat=35\n"),
        (AFTER, "bandwidth (round {m}) bandwidth: {v} lat=35 | bandwidth\n"),
    ],
    ids=["before", "after", "before, by another spec", "needle again"],
)
def test_the_iteration_on_either_side(tmp_path: Path, spec: ParseSpec, text: str) -> None:
    found = read(tmp_path, "".join(text.format(n=n, m=n - 1, v=100 + n) for n in (1, 2, 3)), spec)
    assert [step.iteration for step in found.steps] == [0, 1, 2]
    assert [step.values["busbw"] for step in found.steps] == [101, 102, 103]


def test_several_steps_on_one_line(tmp_path: Path) -> None:
    padding = "." * 50
    text = "".join(f"llmb step {n}/2 busbw={n}.5 latency=1 {padding}" for n in range(3)) + "\n"
    assert values(read(tmp_path, text)) == [
        (n, {"busbw": n + 0.5, "latency": 1.0}) for n in range(3)
    ]


def test_several_ranks_log_a_step(tmp_path: Path) -> None:
    text = "".join(
        f"[rank{r}]:llmb step {n}/2 busbw={100 * r + n}\n" for n in range(3) for r in (0, 1)
    )
    found = read(tmp_path, text)
    assert [step.values["busbw"] for step in found.steps] == [0, 1, 2]


def test_compressed_and_growing_logs(tmp_path: Path) -> None:
    packed = tmp_path / "log-p.out.gz"
    packed.write_bytes(gzip.compress(own_lines().encode()))
    assert len(read_log(packed, OWN).steps) == 20
    growing = tmp_path / "log-g.out"
    text = own_lines().encode()
    state = None
    for end in range(0, len(text) + 1, 97):
        growing.write_bytes(text[:end])
        reading = read_on(growing, OWN, state)
        state = reading.state
    growing.write_bytes(text)
    assert read_on(growing, OWN, state).samples == read_log(growing, OWN)


def test_an_iteration_at_the_end_of_a_growing_log_may_have_further_digits(tmp_path: Path) -> None:
    spec = ParseSpec(
        needle="bandwidth",
        iteration=r"round (?P<i>\d{1,9})",
        keys={"busbw": "bandwidth"},
        metrics=("busbw",),
    )
    path = tmp_path / "log-g.out"
    text = "bandwidth: 480.5 round 9\nbandwidth: 481.5 round 10"
    state = None
    for end in range(text.index("\n") + 1, len(text) + 1):
        path.write_text(text[:end])
        reading = read_on(path, spec, state)
        assert values(reading.samples) == [(9, {"busbw": 480.5})]
        state = reading.state
    path.write_text(text + "\n")
    found = read_on(path, spec, state).samples
    assert (values(found), found.attempts) == ([(9, {"busbw": 480.5}), (10, {"busbw": 481.5})], 1)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 700), st.sampled_from([OWN, BEFORE, AFTER]))
def test_hostile_bytes_anywhere(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int, spec: ParseSpec
) -> None:
    text = (own_lines(10) + "round 1 of 9 bandwidth=3\nbandwidth=4 (round 7)\n").encode()
    path = tmp_path_factory.mktemp("x") / "log-x.out"
    path.write_bytes(text[:at] + noise + text[at:])
    found = read_log(path, spec)
    assert all(step.iteration >= 0 for step in found.steps)


@pytest.mark.parametrize(
    "unit", [b"llmb step ", b"llmb step 1/2 ", b"llmb step 1/2 busbw=", b"bandwidth (round 1) " * 3]
)
def test_a_line_without_an_end_is_read_in_linear_time(tmp_path: Path, unit: bytes) -> None:
    """Work is bounded by the reach around each hit, and hits within a few bytes of each other are
    one.
    """
    text = unit * ((64 * REACH) // len(unit))
    for spec in (OWN, AFTER):
        assert len(read(tmp_path, text, spec).steps) <= len(text) // 40 + 2


def test_an_iteration_of_a_plugin_that_is_no_number(tmp_path: Path) -> None:
    spec = ParseSpec(
        needle="busbw", iteration=r"round (?P<i>\w+)", keys={"busbw": "busbw"}, metrics=("busbw",)
    )
    assert values(read(tmp_path, "round one busbw=1\nround 2 busbw=2\n", spec)) == [
        (2, {"busbw": 2.0})
    ]


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"(?:round (?P<i>\d+)|all) ", "all busbw=1"),  # the group does not take part
        (r"round (?P<i>\w+)", "round one busbw=1"),
        (r"round (?P<i>\d+)/(?P<last>\w+)", "round 1/many busbw=1"),
        (r"round (?P<i>\d+)", "round " + "9" * 400 + " busbw=1"),  # more than a float has
    ],
)
def test_a_log_without_a_number_names_plugin_field_and_line(
    pattern: str, line: str, tmp_path: Path
) -> None:
    spec = ParseSpec(
        needle="busbw",
        iteration=pattern,
        keys={"busbw": "busbw"},
        metrics=("busbw",),
        source="acme:x",
    )
    with pytest.raises(PatternError) as caught:
        read(tmp_path, f"{line}\n", spec)
    error = caught.value
    assert (error.code, error.key, error.value) == ("pattern-no-number", "iteration", "acme:x")
    assert line[:20] in error.message
    assert error.hint


def test_a_slow_pattern_is_refused_on_either_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "PATTERN_SECONDS", 0.2)
    for source, text in (
        ("acme:x", "x" * 60 + " busbw=1\n"),
        ("acme:y", "busbw=1 " + "x" * 60 + "\n"),
    ):
        spec = ParseSpec(
            needle="busbw", iteration=r"(?:x+x+)+(?P<i>\d)", keys={"busbw": "busbw"}, source=source
        )
        with pytest.raises(SlowPatternError) as caught:
            read(tmp_path, text, spec)
        assert (caught.value.key, caught.value.value) == ("iteration", source)
