# SPDX-License-Identifier: Apache-2.0
"""Tests that a log that grows is read on from where it was left, to the same samples."""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from llmb.core import typed, yamlfile
from llmb.measure.log_reader import read_log, read_on
from llmb.measure.step_collector import ReadState

STEP = (
    "Training epoch 0, iteration {0}/49 | global_batch_size: 128 | global_step: {0} |"
    " reduced_train_loss: 1.5 | train_step_timing in s: {1} | consumed_samples: 12"
)
LINES = [
    *(STEP.format(n, f"{n}.39") for n in (0, 1, 2, 3, 0)),
    "`Trainer.fit` stopped: `max_steps=50` reached.",
    "n1:7:9 [0] NCCL INFO Using network IB",
    "n2:7:9 [0] NCCL INFO NCCL version 2.26.3+cuda12.9",
    (
        "Global Checkpoint Load : Rank : 1 : Start time : 17.270s : Time spent in load_checkpoint:"
        " 9.712s"
    ),
    (
        "Global Checkpoint Save : Rank: 0 : Iteration: 50 : Start time: 17.151s : Save duration:"
        " 4.389s"
    ),
    " iteration        3/      50 | elapsed time per iteration (ms): 2690.1 | lm loss: 1.2E+01 |",
    "Step Time : 2.69s GPU utilization: 611.5MODEL_TFLOP/s/GPU",
    (
        'llmb node n1: {"driver": "570.86.15", "gpus": 8, "max_sm_clock_mhz": 1980,'
        ' "power_limit_w": 700.5}'
    ),
    "train_step_timing in s: [1.5, 2.5]",
    (
        "Epoch 0: :  7%|█ | 7/100 [07:57<00:00, reduced_train_loss=7.310, global_step=6.00,"
        " train_step_timing in s=3.590]"
    ),
    "node:1:2 [7] NCCL INFO AllReduce: opCount 2",
]


def grown(folder: Path, content: bytes, cuts: list[int]) -> ReadState:
    """The state after the log was read at each of its sizes, kept as JSON in between."""
    path, state = folder / "log-x.out", ReadState()
    for cut in sorted({*(cut % (len(content) + 1) for cut in cuts)}):
        path.write_bytes(content[:cut])
        reading = read_on(path, state=state)
        assert reading.samples == read_log(path)
        text = json.dumps(typed.to_data(reading.state))
        state = typed.read(ReadState, yamlfile.Document(name="state", data=json.loads(text)))
        assert state == reading.state
    return state


@given(
    st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(["\n", "\r", "\r\n"])), max_size=12),
    st.lists(st.integers(0, 1 << 16), max_size=5),
)
def test_in_parts_as_at_once(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, str]], cuts: list[int]
) -> None:
    content = "".join(line + end for line, end in parts).encode()
    folder = tmp_path_factory.getbasetemp()
    state = grown(folder, content, [*cuts, len(content)])
    assert state.offset == len(content)


def test_what_has_been_read_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "log-x.out"
    path.write_text(STEP.format(0, "2.5") + "\n" + STEP.format(1, "2.39"))
    first = read_on(path)
    assert [step.step_time for step in first.samples.steps] == [2.5, 2.39]
    assert first.state.offset == len(STEP.format(0, "2.5")) + 1
    blanked = b" " * first.state.offset + STEP.format(1, "2.391").encode() + b"\n"
    path.write_bytes(blanked)
    second = read_on(path, state=first.state)
    assert [step.step_time for step in second.samples.steps] == [2.5, 2.391]
    assert second.state.offset == len(blanked)


def test_a_log_that_became_shorter_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "log-x.out"
    path.write_text(STEP.format(7, "2.5") + "\n" + STEP.format(8, "2.5") + "\n")
    state = read_on(path).state
    path.write_text(STEP.format(0, "3.5") + "\n")
    assert [step.iteration for step in read_on(path, state=state).samples.steps] == [0]
