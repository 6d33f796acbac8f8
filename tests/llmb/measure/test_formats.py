# SPDX-License-Identifier: Apache-2.0
"""Tests that the logs of older and newer training programs are known by themselves and read into
the same samples.
"""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from llmb.contract.samples import Samples, Step
from llmb.measure.facts import GRADIENT_NAN, invalid_because
from llmb.measure.log_reader import progress, read_log

BAR = (
    "Epoch 0: : 100%|██████████| {}/100 [07:57<00:00, reduced_train_loss=7.310, global_step={:#.4},"
    " consumed_samples={}, train_step_timing in s={}]"
)
NEMO1 = (
    "Epoch 0: : 100%|██████████| 100/100 [07:57<00:00, reduced_train_loss=7.310, global_step=99.00,"
    " consumed_samples=25600.0, train_step_timing in s=3.590]"
)
MEGATRON = (
    " [2025-12-19 10:49:15] iteration {:8}/{:8} | consumed samples: {:12} | elapsed time per"
    " iteration (ms): {} | {}learning rate: 4.500000E-06 | global batch size: {:5} | lm loss: {} |"
    " loss scale: 1.0 | grad norm: 10.275 | number of skipped iterations:   0 | number of nan"
    " iterations:   0 |"
)
FLOPS = "throughput per GPU (TFLOP/s/GPU): {} | "
STEP_TIME = "Step Time : {}s GPU utilization: {}MODEL_TFLOP/s/GPU"


def read(folder: Path, content: str) -> Samples:
    path = folder / "log-x.out"
    path.write_text(content, encoding="utf-8")
    return read_log(path)


def bar(done: int, time: str = "3.590", step: int | None = None) -> str:
    step = done - 1 if step is None else step
    return BAR.format(done, float(step), 256.0 * (step + 1), time)


def megatron(
    iteration: int,
    time: str = "20289.1",
    flops: str = FLOPS.format("611.5"),
    loss: str = "1.25E+01",
) -> str:
    return MEGATRON.format(iteration, 50, 128 * iteration, time, flops, 128, loss)


def test_the_sample_line_of_nemo_1(tmp_path: Path) -> None:
    assert read(tmp_path, NEMO1 + "\n") == Samples(
        steps=(Step(iteration=99, step_time=3.59, loss=7.31),),
        last=99,
        attempts=1,
        framework="NeMo 1",
        gbs=256,
        batches=((99, 256),),
    )


def test_a_bar_that_is_drawn_again_and_again(tmp_path: Path) -> None:
    drawn = ["Epoch 0: :   0%|          | 0/100 [00:00<?]"]
    for done in range(1, 6):
        if done > 1:
            drawn.append(bar(done, time="9.999", step=done - 2))  # moved on, its values not yet
        drawn += [bar(done, time=f"{done}.500"), bar(done, time=f"{done}.500")]
    samples = read(tmp_path, "\r".join(drawn))
    assert (samples.attempts, samples.last, samples.gbs) == (1, 99, 256)
    assert [(step.iteration, step.step_time) for step in samples.steps] == [
        (n, n + 1.5) for n in range(5)
    ]
    assert (progress(tmp_path / "log-x.out")[0] or ())[:2] == (4, 99)


@pytest.mark.parametrize(
    ("text", "value"), [("3.2e+4", 32000.0), ("0.312", 0.312), ("99.00", 99.0), ("1e+3", 1000.0)]
)
def test_numbers_of_three_digits(tmp_path: Path, text: str, value: float) -> None:
    (step,) = read(tmp_path, bar(7, time=text) + "\n").steps
    assert (step.iteration, step.step_time) == (6, value)


def test_the_list_of_nemo_1(tmp_path: Path) -> None:
    samples = read(tmp_path, "0: train_step_timing in s: [11.85, 6.98, 7e-1, nan]\nend\n")
    assert [step.step_time for step in samples.steps[:3]] == [11.85, 6.98, 0.7]
    assert (samples.last, samples.attempts, len(samples.steps)) == (3, 1, 4)
    many, cut, damaged = (
        read(tmp_path, f"train_step_timing in s: [{text}")
        for text in (f"{', '.join(['3.5'] * 6000)}]\n", "1.5, 2.5, 3.", "1.5, what]\n")
    )
    assert len(many.steps) == 6000
    assert cut.max_iteration == 1
    assert not damaged.steps


def test_steps_of_their_own_lines_come_before_a_list(tmp_path: Path) -> None:
    both = bar(1, time="1.500") + "\ntrain_step_timing in s: [9.5, 9.5]\n"
    assert read(tmp_path, both).steps == (Step(iteration=0, step_time=1.5, loss=7.31),)


def test_the_lines_of_megatron(tmp_path: Path) -> None:
    samples = read(tmp_path, "".join(f"{megatron(n)}\n" for n in range(1, 51)))
    assert [step.iteration for step in samples.steps] == list(range(50))
    assert samples.steps[0] == Step(
        iteration=0, step_time=20289.1 * 1e-3, tflops=611.5, loss=12.5, grad_norm=10.275
    )
    assert (samples.last, samples.attempts, samples.gbs, samples.framework) == (
        49,
        1,
        128,
        "Megatron",
    )
    assert (progress(tmp_path / "log-x.out")[0] or ())[:2] == (49, 49)


def test_the_sample_line_of_megatron_bridge(tmp_path: Path) -> None:
    line = (
        " [2025-12-19 10:49:15] iteration 1/ 50 | consumed samples: 128 | elapsed time per"
        " iteration (ms): 20289.1 | throughput per GPU (TFLOP/s/GPU): 611.5 | lm loss: 1.258695E+01"
        " | grad norm: 10.275 |\n"
    )
    (step,) = read(tmp_path, line).steps
    assert step == Step(
        iteration=0, step_time=20289.1 * 1e-3, tflops=611.5, loss=12.58695, grad_norm=10.275
    )


# NeMo's line as our program leaves it, and Megatron-LM's, which writes the norm of a gradient that
# is no number as nan.
NORMS = {
    "NeMo 2": (
        "Training epoch 0, iteration 3/4 | lr: 5.997e-07 | global_batch_size: 4 | global_step: 3 |"
        " reduced_train_loss: 7.036 | train_step_timing in s: 0.06232 | TFLOPS_per_GPU: 0.2045 |"
        " gradient_norm: {} | consumed_samples: 16\n"
    ),
    "NeMo 2, its own key": (
        "iteration 3/4 | train_step_timing in s: 1.5 | reduced_train_loss: 7.0 | grad_norm: {}\n"
    ),
    "Megatron": (
        " iteration        4/      50 | consumed samples:          128 | elapsed time per iteration"
        " (ms): 20289.1 | lm loss: 1.258695E+01 | loss scale: 1.0 | grad norm: {} | number of"
        " skipped iterations:   0 |\n"
    ),
}


@pytest.mark.parametrize("line", NORMS.values(), ids=list(NORMS))
def test_a_gradient_norm_is_read_and_one_that_is_no_number_makes_a_run_invalid(
    tmp_path: Path, line: str
) -> None:
    sound = read(tmp_path, line.format("0.7725"))
    assert (sound.steps[0].iteration, sound.steps[0].grad_norm, sound.has_nan_gradient) == (
        3,
        0.7725,
        False,
    )
    assert invalid_because(sound, None) == ()
    broken = read(tmp_path, line.format("nan"))
    assert broken.has_nan_gradient
    assert not broken.has_nan
    # At any step: this one is in no window.
    assert invalid_because(broken, None) == (GRADIENT_NAN,)


@pytest.mark.parametrize("first", [True, False])
def test_step_time_fills_what_the_iteration_lacks(tmp_path: Path, first: bool) -> None:
    lines = []
    for n in range(1, 4):
        pair = [megatron(n, time=f"{n}690.4", flops=""), STEP_TIME.format(f"{n}.69", 600 + n)]
        lines += pair[::-1] if first else pair
    samples = read(tmp_path, "\n".join(lines) + "\n")
    assert [(step.iteration, step.tflops) for step in samples.steps] == [
        (0, 601),
        (1, 602),
        (2, 603),
    ]


@pytest.mark.parametrize("first", [True, False])
def test_what_step_time_says_is_of_one_step(tmp_path: Path, first: bool) -> None:
    """Steady steps take the same time to the millisecond, and other TFLOPS."""
    lines = []
    for n in range(1, 4):
        pair = [megatron(n, time=f"2690.{n}", flops=""), STEP_TIME.format("2.69", 600 + n)]
        lines += pair[::-1] if first else pair
    samples = read(tmp_path, "\n".join(lines) + "\n")
    assert [(step.iteration, step.tflops) for step in samples.steps] == [
        (0, 601),
        (1, 602),
        (2, 603),
    ]


def test_step_time_alone(tmp_path: Path) -> None:
    samples = read(
        tmp_path, "".join(f"3: {STEP_TIME.format(f'{n}.69', 611.5)}\nx\n" for n in range(3))
    )
    assert samples.steps[1] == Step(iteration=1, step_time=1.69, tflops=611.5)
    assert (samples.last, samples.attempts, samples.framework) == (2, 1, "Megatron-Bridge")
    cut = "Step Time : 2.69s GPU utilization: 61"
    assert not read(tmp_path, cut).steps


def test_a_packed_log(tmp_path: Path) -> None:
    path = tmp_path / "log-x.out.gz"
    path.write_bytes(gzip.compress("".join(f"{megatron(n)}\n" for n in range(1, 51)).encode()))
    assert read_log(path).max_iteration == 49


TIMES = st.lists(
    st.floats(0.01, 99).map(lambda value: float(f"{value:.4}")), min_size=1, max_size=50
)


@given(TIMES, st.binary(max_size=30).map(lambda noise: noise.replace(b"\x1b", b"")))
def test_every_step_is_found_between_any_bytes(
    tmp_path_factory: pytest.TempPathFactory, times: list[float], noise: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "log"
    for end in (b"\n", b"\r"):
        bars = [bar(i, time=str(time)).encode() for i, time in enumerate(times, 1)]
        path.write_bytes(b"".join(noise + end + line + end for line in bars))
        assert [step.step_time for step in read_log(path).steps] == times
        lines = [megatron(i, time=str(1000 * time)).encode() for i, time in enumerate(times, 1)]
        path.write_bytes(b"".join(noise + end + line + end for line in lines))
        assert [step.step_time for step in read_log(path).steps] == pytest.approx(times)
