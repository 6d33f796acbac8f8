# SPDX-License-Identifier: Apache-2.0
"""Lines of JSON, numbers with commas, and steps of several lines, described by a ParseSpec."""

from pathlib import Path

import pytest

from llmb.contract.formats import ParseSpec
from llmb.errors import KeyFaultError
from llmb.measure.log_reader import read_log, read_on
from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader

JSON = ParseSpec(
    needle='"step"',
    iteration="step/steps",
    keys={"step_time": "ms", "loss": "train.loss", "gbs": "batch", "busbw": "busbw|bus"},
    units={"step_time": "ms"},
    json_lines=True,
    first_iteration=1,
    metrics=("busbw",),
)
THREE = ParseSpec(
    needle="=== step",
    iteration=r"step (?P<i>\d{1,9})",
    keys={"step_time": "elapsed", "loss": "loss"},
    lines=3,
)
STEP = "=== step {n}\n  loss: {loss}\n  elapsed: {seconds}\n"


def of_three(count: int) -> str:
    return "".join(STEP.format(n=n, loss=11.5 - n, seconds=2.5 + n) for n in range(count))


def written(folder: Path, text: str) -> Path:
    path = folder / "x.log"
    path.write_text(text)
    return path


def test_an_object_in_each_line(tmp_path: Path) -> None:
    text = (
        '[default0]:{"step": 1, "steps": 50, "ms": 2500, "train": {"loss": 9.5}, "batch": 64}\n'
        'x {"step": 2, "steps": 50, "ms": 2600.5, "train": {"loss": NaN}, "bus": 480} y\n'
        '{"step": 3, "steps": 50, "text": "\\"ms\\": 7", "loss": 1}\n'
        '{"step": 4, "ms": 27'
    )
    found = read_log(written(tmp_path, text), JSON)
    first, second = found.steps
    assert (first.iteration, first.step_time, first.loss, found.gbs) == (0, 2.5, 9.5, 64)
    assert (second.iteration, second.values) == (1, {"busbw": 480})
    assert second.step_time == pytest.approx(2.6005)
    assert second.loss is not None
    assert second.loss != second.loss
    assert found.last == 49


def test_values_of_one_step_in_two_objects_are_joined(tmp_path: Path) -> None:
    text = '{"step": 1, "ms": 2500}\n{"step": 1, "busbw": 480.5}\n'
    (step,) = read_log(written(tmp_path, text), JSON).steps
    assert (step.step_time, step.values) == (2.5, {"busbw": 480.5})


def test_a_step_of_three_lines(tmp_path: Path) -> None:
    found = read_log(written(tmp_path, of_three(2)), THREE)
    assert [(step.iteration, step.loss, step.step_time) for step in found.steps] == [
        (0, 11.5, 2.5),
        (1, 10.5, 3.5),
    ]


def test_the_lines_of_the_next_step_are_not_of_this_one(tmp_path: Path) -> None:
    text = "=== step 0\n  elapsed: 2.5\n" + STEP.format(n=1, loss=9.5, seconds=3.5)
    first, second = read_log(written(tmp_path, text), THREE).steps
    assert (first.loss, first.step_time, second.loss) == (None, 2.5, 9.5)


@pytest.mark.parametrize("at", range(1, len(of_three(3))))
def test_a_growing_log_of_such_steps_reads_as_the_whole(at: int, tmp_path: Path) -> None:
    whole = of_three(3)
    path = written(tmp_path, whole[:at])
    _, state = read_on(path, THREE)
    path.write_text(whole)
    assert read_on(path, THREE, state).samples == read_log(path, THREE)


def test_a_number_is_not_read_before_its_line_ends(tmp_path: Path) -> None:
    path = written(tmp_path, "=== step 0\n  loss: 11.5\n  elapsed: 2.5")
    assert read_log(path, THREE).steps == ()


def test_a_number_at_the_end_of_a_growing_log_may_go_on(tmp_path: Path) -> None:
    spec = ParseSpec(patterns={"step_time": r"took (?P<value>\d+(\.\d+)?)(?: s)?"})
    text = "took 2.5 s\ntook 2.75 s\n"
    for end, times in ((None, [2.5, 2.75]), (-1, [2.5]), (-4, [2.5]), (-5, [2.5])):
        read = read_log(written(tmp_path, text[:end]), spec)
        assert [step.step_time for step in read.steps] == times


def test_numbers_with_commas(tmp_path: Path) -> None:
    spec = ParseSpec(
        needle="took",
        iteration=r"step (?P<i>[\d,]{1,12})",
        keys={"step_time": "took"},
        thousands=True,
    )
    (step,) = read_log(written(tmp_path, "step 1,200 took: 2,693.25\n"), spec).steps
    assert (step.iteration, step.step_time) == (1200, 2693.25)
    whole = ParseSpec(patterns={"step_time": r"took (?P<value>[\d.,]+)"}, thousands=True)
    (step,) = read_log(written(tmp_path, "took 2,693.25\n"), whole).steps
    assert step.step_time == 2693.25


@pytest.mark.parametrize(
    ("spec", "text", "words"),
    [
        (THREE, "=== step x\nelapsed: 2\n", ["=== step x", r"iteration 'step (?P<i>\\d{1,9})'"]),
        (THREE, "=== step 3\nloss: 2\n", ["=== step 3", "no number by 'elapsed'"]),
        (THREE, "nothing\n", ["no line has the needle '=== step'"]),
        (JSON, '"step" 3\n', ['"step" 3', "no whole object in JSON"]),
        (JSON, '{"step": "a"}\n', ["'step' is no whole number"]),
        (JSON, '{"step": 3, "s": 1}\n', ["no number called 'ms' or"]),
        (ParseSpec(patterns={"tflops": r"at (?P<value>\d+)"}), "x\n", ["nothing in the log", "at "]),
    ],
)  # fmt: skip
def test_the_reason_quotes_the_line_and_says_why(
    spec: ParseSpec, text: str, words: list[str], tmp_path: Path
) -> None:
    result = result_of_log(written(tmp_path, text), LogReader(spec=spec))
    assert result.status == "Unknown"
    assert all(word in (result.reason or "") for word in words), result.reason


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"lines": 0}, "lines-invalid"),
        ({"lines": 101}, "lines-invalid"),
        ({"json_lines": True, "iteration": "a/b/c"}, "pattern-invalid"),
        ({"json_lines": True, "iteration": ""}, "pattern-invalid"),
        ({"json_lines": True, "iteration": "step", "lines": 2}, "json-conflict"),
    ],
)
def test_a_description_that_can_never_be_right(fields: dict[str, object], code: str) -> None:
    with pytest.raises(KeyFaultError) as caught:
        ParseSpec(**{"needle": "step", "iteration": r"step (?P<i>\d)", **fields})  # type: ignore[arg-type]
    assert caught.value.code == code


def test_the_batch_may_be_matched_by_a_pattern(tmp_path: Path) -> None:
    spec = ParseSpec(
        needle="step ",
        iteration=r"step (?P<i>\d{1,9})",
        keys={"step_time": "took"},
        patterns={"gbs": r"(?P<value>\d+) samples"},
    )
    text = "".join(f"step {n} took: 2.5 with {64 if n < 9 else 128} samples\n" for n in range(20))
    found = read_log(written(tmp_path, text), spec)
    assert found.batches == ((0, 64), (9, 128))
