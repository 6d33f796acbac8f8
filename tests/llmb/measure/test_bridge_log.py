# SPDX-License-Identifier: Apache-2.0
"""Logs of Megatron-Bridge: one rank prints the iteration, another the step time, and neither waits
for the other.

The lines are composed by the format of the library's training log (train_utils.py of 0.3.1 to
0.6.0); no GPU printed them.
"""

import random
from pathlib import Path

import pytest

from llmb.measure.log_reader import read_log

LAST_RANK = (
    " [2026-11-22 09:41:00] iteration {0:8d}/{1:8d} | consumed samples: {2:12d} | elapsed time per"
    " iteration (ms): {3:.1f} | learning rate: 2.999000E-04 | global batch size: {4:5d} |{5} loss"
    " scale: 1.0 | grad norm: {6} | number of skipped iterations:   0 | number of nan iterations: "
    "  0 |"
)
FIRST_RANK = "Step Time : {:.2f}s GPU utilization: {:.1f}MODEL_TFLOP/s/GPU"
MEMORY = (
    "[Rank 0] (after 1 iterations) memory (GB) | mem-allocated-gigabytes: 41.2 |"
    " mem-max-allocated-gigabytes: 63.9"
)
WORK = 731.2 * 5.68  # TFLOPS times seconds of a step: a constant of the configuration
STEPS, BATCH = 50, 128
# seconds, of the steps 1 to 50
TIMES = [31.2, 6.0, *(5.6 + 0.01 * (step % 7) for step in range(3, STEPS + 1))]
LOSS = " lm loss: 1.187123E+01 |"


def last_rank(step: int, loss: str = LOSS, norm: str = "0.123") -> str:
    return LAST_RANK.format(step, STEPS, BATCH * step, 1000 * TIMES[step - 1], BATCH, loss, norm)


def first_rank(step: int) -> str:
    return FIRST_RANK.format(TIMES[step - 1], WORK / TIMES[step - 1])


def woven(seed: int) -> list[str]:
    """Both ranks' lines, each rank's in its order; the one or the other is up to two steps
    ahead.
    """
    source, lines = random.Random(seed), [MEMORY]
    first = last = 0
    while min(first, last) < STEPS:
        ahead = first - last
        takes_first = source.random() < 0.5 if abs(ahead) < 2 else ahead < 0
        if (takes_first and first < STEPS) or last == STEPS:
            first += 1
            lines.append(first_rank(first))
        else:
            last += 1
            lines.append(last_rank(last))
    return lines


@pytest.mark.parametrize("seed", range(8))
def test_two_ranks_in_any_order(tmp_path: Path, seed: int) -> None:
    """Times are those of the iteration lines, to the tenth of a millisecond, in the window 35 to 44
    as printed.
    """
    log = tmp_path / "log-x.out"
    log.write_text("\n".join(woven(seed)) + "\n", encoding="utf-8")
    samples = read_log(log)
    assert (samples.framework, samples.gbs, samples.last, samples.attempts) == (
        "Megatron-Bridge",
        BATCH,
        STEPS - 1,
        1,
    )
    assert [round(step.step_time, 4) for step in samples.steps] == [
        round(time, 4) for time in TIMES
    ]
    assert all(
        step.tflops is not None and abs(step.tflops * step.step_time / WORK - 1) < 0.02
        for step in samples.steps[2:]
    )
    wanted = [round(time, 4) for time in TIMES[34:44]]
    found = [step.step_time for step in samples.steps if 35 <= step.iteration + 1 <= 44]
    assert sum(found) / len(found) == pytest.approx(sum(wanted) / len(wanted))


def test_a_loss_that_is_not_printed(tmp_path: Path) -> None:
    """The library omits a loss that is 0 or no number, and prints a norm that is none."""
    log = tmp_path / "log-x.out"
    log.write_text(
        "".join(f"{last_rank(step, '', 'nan')}\n{first_rank(step)}\n" for step in (1, 2, 3)),
        "utf-8",
    )
    samples = read_log(log)
    assert [step.loss for step in samples.steps] == [None, None, None]
    assert samples.has_nan_gradient
