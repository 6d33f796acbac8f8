# SPDX-License-Identifier: Apache-2.0
"""Tests that a training log is read right whatever else is in it."""

import math
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from llmb.contract.formats import ParseSpec
from llmb.contract.samples import Node, Samples, Step
from llmb.core.scan import CHUNK, REACH
from llmb.errors import LlmbError
from llmb.measure.facts import facts_of
from llmb.measure.log_reader import progress, read_log

SPEC = ParseSpec()
SAMPLE = (
    "Training epoch 0, iteration 49/49 | lr: 7.496e-06 | global_batch_size: 128 | global_step: 49 |"
    " peak_memory_usage: 70833405952 | memory_allocated: 44271689728 | reduced_train_loss: 11.96 |"
    " train_step_timing in s: 12.39 | consumed_samples: 6400"
)
SAMPLE_STEP = Step(iteration=49, step_time=12.39, loss=11.96)
END = "`Trainer.fit` stopped: `max_steps=50` reached."
SAVE = (
    "[NeMo I 2025-04-11 14:48:45 nemo_logging:393] Global Checkpoint Save : Rank: {} : Iteration:"
    " 50 : Start time: 1744408121.151s : Save duration: {}s"
)
LOAD = (
    "[NeMo I 2025-04-11 14:46:18 nemo_logging:393] Global Checkpoint Load : Rank : {} : Start time"
    " : 1744407969.270s : Time spent in load_checkpoint: {}s"
)


def line(
    iteration: int,
    last: int = 49,
    time: str = "12.39",
    tflops: str | None = "611.5",
    loss: str = "11.96",
) -> str:
    flops = "" if tflops is None else f" | TFLOPS_per_GPU: {tflops}"
    return (
        f"Training epoch 0, iteration {iteration}/{last} | lr: 4.5e-06 | global_batch_size: 128 |"
        f" global_step: {iteration} | reduced_train_loss: {loss} | train_step_timing in s:"
        f" {time}{flops} | consumed_samples: {128 * (iteration + 1)}"
    )


def read(folder: Path, content: str | bytes) -> Samples:
    path = folder / "log-x.out"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_log(path, SPEC)


def iterations(samples: Samples) -> list[int]:
    return [step.iteration for step in samples.steps]


def test_the_sample_line(tmp_path: Path) -> None:
    assert read(tmp_path, SAMPLE + "\n") == Samples(
        steps=(SAMPLE_STEP,),
        last=49,
        attempts=1,
        framework="NeMo 2",
        gbs=128,
        batches=((49, 128),),
        peak_memory=70833405952,
    )


@pytest.mark.parametrize(
    "prefix",
    [
        "[default0]:",
        "0: ",
        " 0: ",
        "pretrain_x/0 ",
        "[2025-04-11 14:48:45] ",
        "\x1b[32m",
        "99%|##|\r",
    ],
)
def test_what_is_before_a_step(tmp_path: Path, prefix: str) -> None:
    assert read(tmp_path, f"hello\n{prefix}{SAMPLE}\nworld\n").steps == (SAMPLE_STEP,)


@pytest.mark.parametrize(
    "content",
    [
        "node:1:2 [7] NCCL INFO AllReduce: opCount 2" + SAMPLE + "\n",
        SAMPLE + "[NeMo W 2025-04-11 14:48:45 nemo_logging:405] something\n",
        SAMPLE + "\r",
        SAMPLE.replace("train_step", "\x1b[1mtrain_step").replace(
            ": 12.39", "\x1b[0m: \x1b[36m12.39\x1b[0m"
        )
        + "\n",
        SAMPLE.replace(" | ", "   |\t").replace(": 12.39", ":12.39") + "\r\n",
        SAMPLE,
    ],
    ids=[
        "glued before",
        "glued after",
        "carriage return",
        "coloured",
        "other blanks",
        "no newline",
    ],
)
def test_a_step_wherever_it_is_there(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content).steps == (SAMPLE_STEP,)


def test_two_steps_in_one_line_keep_their_own_values(tmp_path: Path) -> None:
    samples = read(
        tmp_path,
        line(7, time="1.5", tflops=None) + "1: " + line(8, time="2.5", tflops="99.5") + "\n",
    )
    assert samples.steps == (
        Step(iteration=7, step_time=1.5, loss=11.96),
        Step(iteration=8, step_time=2.5, tflops=99.5, loss=11.96),
    )


def test_a_half_step_does_not_lend_its_iteration(tmp_path: Path) -> None:
    halves = (
        " | train_step_timing in s: 3.5\ntrain_step_timing in s: 4.5\rtrain_step_timing in s: 5.5\n"
    )
    (step,) = read(tmp_path, line(7) + halves).steps
    assert (step.iteration, step.step_time) == (7, 12.39)
    other = "iteration 7/49 | lr: 1\rtrain_step_timing in s: 4.5\n"
    assert not read(tmp_path, other).steps


def test_values_go_by_key(tmp_path: Path) -> None:
    content = (
        "iteration 3/9 | TFLOPS_per_GPU: 1.234e+03 | train_step_timing in s: 12 |"
        " other_reduced_train_loss: 1 | reduced_train_loss: 8.5 | tokens_per_sec_per_gpu: 5 |"
        " max_memory_reserved: 70833405952\n"
    )
    assert read(tmp_path, content).steps == (
        Step(iteration=3, step_time=12, tflops=1234, loss=8.5),
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e+03", 1000.0),
        ("4.5e-06", 4.5e-06),
        ("12", 12.0),
        ("1.601e+03", 1601.0),
        ("inf", math.inf),
    ],
)
def test_numbers(tmp_path: Path, text: str, value: float) -> None:
    (step,) = read(tmp_path, line(3, time=text, tflops=text, loss=text) + "\n").steps
    assert (step.step_time, step.tflops, step.loss) == (value, value, value)


def test_not_a_number(tmp_path: Path) -> None:
    (step,) = read(tmp_path, line(3, loss="nan") + "\n").steps
    assert step.loss is not None
    assert math.isnan(step.loss)
    assert step.step_time == 12.39


@pytest.mark.parametrize(
    "content", ["", "\n", "nothing here\n", "train_step_timing in s: 3.5\n", line(3)[:20]]
)
def test_no_step(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content) == Samples()


def test_a_line_cut_anywhere_gives_the_true_value_or_none(tmp_path: Path) -> None:
    whole = line(3, time="12.39", tflops="1.234e+03")
    for end in range(len(whole)):
        samples = read(tmp_path, line(2) + "\n" + whole[:end])
        assert samples.steps[0].iteration == 2
        for step in samples.steps[1:]:
            assert (step.iteration, step.step_time) == (3, 12.39)
            assert step.tflops in (None, 1234.0)


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    content = b"\xff\xfe\x00" + SAMPLE.encode() + b"\xc3\n\x80\x81"
    assert read(tmp_path, content).steps == (SAMPLE_STEP,)


def test_the_last_attempt_counts(tmp_path: Path) -> None:
    lines = [*(line(i, time="1.5") for i in range(30)), SAVE.format(0, 4.389), END]
    samples = read(
        tmp_path, "\n".join([*lines, *(line(i, time="2.5") for i in range(10, 20))]) + "\n"
    )
    assert (samples.attempts, samples.ended, samples.checkpoints) == (2, False, ())
    assert iterations(samples) == list(range(10, 20))
    assert {step.step_time for step in samples.steps} == {2.5}


def test_an_attempt_may_end_after_its_first_step(tmp_path: Path) -> None:
    samples = read(tmp_path, "\n".join([line(0, time="1.5"), line(0, time="2.5"), line(1)]) + "\n")
    assert samples.attempts == 2
    assert iterations(samples) == [0, 1]


def test_a_step_logged_by_two_ranks_is_one(tmp_path: Path) -> None:
    samples = read(
        tmp_path, "\n".join(f"{rank}: {line(i)}" for i in range(3) for rank in range(2)) + "\n"
    )
    assert samples.attempts == 1
    assert iterations(samples) == [0, 1, 2]


@pytest.mark.parametrize(
    "prefix", ["{}: ", " {}: ", "[default{}]:", "pretrain_x/{} ", "{}: [2025-04-11 14:48:45] "]
)
def test_a_rank_that_lags_behind_begins_nothing_anew(tmp_path: Path, prefix: str) -> None:
    found = [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (1, 2), (0, 3), (1, 3)]
    lines = [prefix.format(rank) + line(step, time=f"{step + 1}.{rank}5") for rank, step in found]
    samples = read(tmp_path, "\n".join(lines) + "\n")
    assert samples.attempts == 1
    assert [(step.iteration, step.step_time) for step in samples.steps] == [
        (n, n + 1.05) for n in range(4)
    ]


@pytest.mark.parametrize(
    "glued", ["  3: hello ", "[default3]:warning ", "1: loading 12/50 shards "]
)
def test_text_of_another_rank_before_a_step_is_not_its_rank(tmp_path: Path, glued: str) -> None:
    lines = [glued + line(0), line(1), "0: " + line(0, time="2.5"), line(1)]
    samples = read(tmp_path, "\n".join(lines) + "\n")
    assert (samples.attempts, samples.steps[0].step_time) == (2, 2.5)


def test_an_attempt_of_one_step_has_its_batch(tmp_path: Path) -> None:
    for key in ("global_batch_size: 128 | ", ""):
        text = "\n".join([line(0), line(1), line(0, time="2.5")]).replace(
            "global_batch_size: 128 | ", key
        )
        samples = read(tmp_path, text + "\n")
        assert (samples.attempts, len(samples.steps), samples.gbs) == (2, 1, 128)


def test_the_end_and_the_saves_of_rank_0(tmp_path: Path) -> None:
    saves = [SAVE.format(rank, seconds) for rank, seconds in [(1, 9.5), (0, 4.389), (10, 8.5)]]
    odd = "Global Checkpoint Save  :  Rank : 0  : Start time : 1.5s : Save duration : 5s"
    samples = read(tmp_path, "\n".join([line(49), END, *saves, odd]) + "\n")
    assert samples.ended
    first, second = samples.checkpoints
    assert (first.kind, first.iteration, first.ranks, first.rank0_seconds, first.max_seconds) == (
        "save",
        50,
        (1, 0, 10),
        4.389,
        9.5,
    )
    assert (second.iteration, second.ranks, second.rank0_seconds) == (None, (0,), 5.0)


def test_another_announced_end(tmp_path: Path) -> None:
    assert read(tmp_path, line(3, last=99) + "\n").last == 99


def test_a_step_across_two_chunks(tmp_path: Path) -> None:
    for shift in (0, 1, 100, 300):
        noise = b"x" * (CHUNK - shift - 1) + b"\n"
        assert read(tmp_path, noise + SAMPLE.encode() + b"\n" + noise + END.encode()).ended
        assert iterations(read(tmp_path, noise + SAMPLE.encode() + b"\n")) == [49]


def test_a_needle_far_from_its_iteration_is_none(tmp_path: Path) -> None:
    far = "iteration 1/9" + "x" * REACH + " | train_step_timing in s: 1.5\n"
    assert not read(tmp_path, far).steps


def test_a_load_belongs_to_the_attempt_behind_it(tmp_path: Path) -> None:
    content = "\n".join(
        [LOAD.format(0, 9.712), LOAD.format(1, 11.5), line(5), SAVE.format(0, 4.389)]
    )
    samples = read(tmp_path, content + "\n")
    load, save = samples.checkpoints
    assert (load.kind, load.ranks, load.rank0_seconds, load.max_seconds) == (
        "load",
        (0, 1),
        9.712,
        11.5,
    )
    assert (save.kind, save.rank0_seconds) == ("save", 4.389)
    again = read(tmp_path, "\n".join([content, LOAD.format(0, 3.5), line(5, time="2.5")]) + "\n")
    assert [(event.kind, event.rank0_seconds) for event in again.checkpoints] == [("load", 3.5)]


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf", "1e999"])
def test_a_checkpoint_of_no_number(tmp_path: Path, bad: str) -> None:
    assert not read(tmp_path, SAVE.format(0, bad) + "\n").checkpoints
    (event,) = read(tmp_path, SAVE.format(bad, 4.5).replace("50", bad) + "\n").checkpoints
    assert (event.ranks, event.iteration, event.max_seconds) == ((0,), None, 4.5)


def test_the_same_rank_again_is_another_checkpoint(tmp_path: Path) -> None:
    saves = [
        SAVE.format(rank, seconds) for rank, seconds in [(0, 4.5), (1, 4.6), (0, 5.5), (1, 5.6)]
    ]
    samples = read(tmp_path, "\n".join([line(49), *saves]) + "\n")
    assert [event.max_seconds for event in samples.checkpoints] == [4.6, 5.6]
    assert not read(tmp_path, SAVE.format(1 << 20, 4.5) + "\n").checkpoints


def test_where_it_ran(tmp_path: Path) -> None:
    content = (
        "node1:7:9 [0] NCCL INFO NCCL version 2.26.3+cuda12.9\nNCCL version"
        " 2.26.3+cuda12.9\nnode1:7:9 [0] NCCL INFO Using network AWS Libfabric\n\x1b[32mnode2:7:9"
        " [1] NCCL INFO Using network Socket\nnode1:8:9 [1] NCCL INFO Using network AWS"
        " Libfabric\nAll distributed processes registered. Starting with 16 processes\n"
    )
    for text in (content, content + line(0) + "\n", line(0) + "\n" + content):
        environment = read(tmp_path, text).environment
        assert environment.networks == ("AWS Libfabric", "Socket")
        assert (environment.hosts, environment.nodes) == (("node1", "node2"), 2)
        assert (environment.nccl_version, environment.world_size) == ("2.26.3+cuda12.9", 16)
    anew = read(
        tmp_path,
        content + line(3) + "\n" + "n:1:2 [0] NCCL INFO Using network IB\n" + line(1) + "\n",
    )
    assert anew.environment.networks == ("IB",)
    for size, found in ((128, 128), (0, None)):
        text = f"using world size: {size}, data-parallel size: 16\n"
        assert read(tmp_path, text).environment.world_size == found


def test_ranks_that_found_no_gpu(tmp_path: Path) -> None:
    """The first lines of torch_pretrain and of microbench, from runs on this machine and as GPUs
    are named.
    """
    for text, device in (
        (
            (
                "torch_pretrain: llama of 1.97 M parameters in bf16, ranks: 1, CPU with 2 threads a"
                " rank, torch 2.13.0"
            ),
            "CPU",
        ),
        (
            (
                "microbench: gemm in fp32, 256 x 256, ranks: 1, CPU with 16 threads a rank, torch"
                " 2.9.1+cpu, gloo"
            ),
            "CPU",
        ),
        (
            (
                "microbench: gemm in fp32, 256 x 256, ranks: 8, NVIDIA H100 80GB HBM3, torch 2.9.1,"
                " nccl"
            ),
            None,
        ),
        ("built for a CPU with AVX", None),
    ):
        assert facts_of(read(tmp_path, f"{text}\n{line(0)}\n")).device == device


NODE = (
    'llmb node {}: {{"driver": "570.86.15", "gpu": "NVIDIA H100 80GB HBM3", "gpus": 8,'
    ' "max_sm_clock_mhz": {}, "power_limit_w": 700.0}}'
)


def test_what_nodes_say_of_themselves(tmp_path: Path) -> None:
    found = [
        f"{8 * number}: " + NODE.format(f"gpu-{number}", clock)
        for number, clock in enumerate((1980, 1755))
    ]
    samples = read(
        tmp_path,
        "\n".join([*found, found[0], "n:1:2 [0] NCCL INFO Using network IB", line(0)]) + "\n",
    )
    facts = facts_of(samples)
    assert (facts.hosts, facts.nodes) == (("gpu-0", "gpu-1", "n"), 3)
    assert facts.drivers == ("570.86.15",)
    assert all(model in NODE for model in facts.gpu_models)
    assert len(facts.gpu_models) == 1
    assert (facts.max_sm_clock_mhz, facts.power_limit_w) == (1755.0, 700.0)
    assert [node.gpus for node in samples.environment.described] == [8, 8]


TRACE = "n:1:2 [0] NCCL INFO AllReduce: opCount 2 sendbuff 0x7f recvbuff 0x7f stream 0x56\n"
WHY = "gpu-016: sudo: a password is required"


@pytest.mark.parametrize("requeued", ["", TRACE * 20_000])
def test_on_how_many_nodes_vboost_was_set(tmp_path: Path, requeued: str) -> None:
    printed = f"llmb vboost {{set on 15 of 16 nodes}}: {WHY}\n"
    samples = read(tmp_path, f"{requeued}{printed}{TRACE}{line(0)}\n")
    assert samples.environment.vboost == f"set on 15 of 16 nodes: {WHY}"
    samples = read(tmp_path, f"{requeued}llmb vboost {{set on 1 of 1 node}}\n{line(0)}\n")
    assert samples.environment.vboost == "set on 1 of 1 node"


def test_the_line_of_earlier_scripts_is_read_at_the_start_of_a_log(tmp_path: Path) -> None:
    printed = f"llmb vboost: set on 15 of 16 nodes: {WHY}\n"
    samples = read(tmp_path, f"{printed}{TRACE * 20_000}{line(0)}\n")
    assert samples.environment.vboost == f"set on 15 of 16 nodes: {WHY}"


@pytest.mark.parametrize(
    "text",
    [
        NODE.format("n", "NaN"),
        NODE.format("n", "9")[:-1],
        NODE.format("n", "[" * 3000),
        "llmb node n: {1}",
        "llmb node : {}",
    ],
)
def test_a_node_whose_line_is_damaged_says_nothing(tmp_path: Path, text: str) -> None:
    assert not read(tmp_path, f"{text}\n").environment.described


def test_a_node_says_only_what_it_can(tmp_path: Path) -> None:
    for facts in (
        '"gpus": 8.5, "power_limit_w": "x", "later": true',
        f'"gpus": -1, "power_limit_w": {"9" * 400}',
        '"max_sm_clock_mhz": 1e999, "gpus": true',
    ):
        text = f'llmb node n: {{"driver": 7, "gpu": "A\\u001b[31m", {facts}}}\n'
        (node,) = read(tmp_path, text).environment.described
        assert node == Node(host="n", gpu="A")


def test_the_highest_memory_and_its_later_name(tmp_path: Path) -> None:
    text = line(0).replace("global_step", "max_memory_reserved: 7 | global_step")
    assert read(tmp_path, text + "\n" + line(1) + "\n").peak_memory == 7
    assert read(tmp_path, SAMPLE + "\n" + line(0) + "\n").peak_memory is None


def test_the_batch_where_only_samples_are_counted(tmp_path: Path) -> None:
    without = line(9).replace("global_batch_size: 128 | ", "")
    assert without != line(9)
    for text in (line(9), without):
        assert read(tmp_path, text + "\n").gbs == 128
    odd = without.replace("consumed_samples: 1280", "consumed_samples: 1285")
    assert read(tmp_path, odd + "\n").gbs is None


def test_noise_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "log-x.out"
    with path.open("wb") as stream:
        for _ in range(32):
            stream.write(b"node:1:2 [7] NCCL INFO AllReduce: opCount 2\n" * (CHUNK // 44))
    tracemalloc.start()
    try:
        read_log(path, SPEC)
        assert tracemalloc.get_traced_memory()[1] < 8 * CHUNK
    finally:
        tracemalloc.stop()


def test_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(LlmbError) as caught:
            read_log(path, SPEC)
        assert (caught.value.code, caught.value.value) == ("log-unreadable", str(path))


def test_another_spec(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("step 4 of 9 seconds=1.5 speed=20\n")
    spec = ParseSpec(
        needle="seconds=",
        iteration=r"step (?P<i>\d+) of (?P<last>\d+)",
        keys={"step_time": "seconds", "tflops": "speed"},
    )
    assert read_log(path, spec).steps == (Step(iteration=4, step_time=1.5, tflops=20.0),)


def test_progress(tmp_path: Path) -> None:
    path = tmp_path / "log"
    at, state = progress(path)
    assert at is None
    path.write_text("starting\n")
    at, state = progress(path, state)
    assert at is None
    path.write_text("starting\n" + "\n".join(line(i) for i in range(13)) + "\n" + line(13)[:40])
    at, state = progress(path, state)
    assert at is not None
    assert (at.iteration, at.last) == (12, 49)
    with path.open("a") as stream:
        stream.write("\n" + "NCCL INFO\n" * 10_000 + line(14, last=99) + "\n")
    at, state = progress(path, state)
    assert at is not None
    assert (at.iteration, at.last) == (14, 99)
    assert progress(path, state) == (at, state)


PIECES = st.sampled_from(
    [
        b"train_step_timing in s",
        b": ",
        b"=",
        b"12.39",
        b"1e999",
        b"nan",
        b"iteration ",
        b"7/49",
        b"9/",
        b"\n",
        b"\r",
        b" | ",
        b"\x1b[",
        b"\x1b]0;",
        b"m",
        b"Global Checkpoint Save",
        b"Save duration: ",
        b"Rank: ",
        b"`Trainer.fit` stopped",
        b"\xff",
    ]
)


@given(st.lists(PIECES | st.binary(max_size=8), max_size=40).map(b"".join))
def test_no_bytes_make_it_fail(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    samples = read(folder, content)
    assert (samples.attempts > 0) == bool(samples.steps)
    if samples.steps:
        assert progress(folder / "log-x.out")[0] is not None or samples.last is None


@given(
    st.lists(
        st.floats(0.001, 9000).map(lambda value: float(f"{value:.4}")), min_size=1, max_size=60
    ),
    st.binary(max_size=30),
)
def test_every_step_is_found_between_any_bytes(
    tmp_path_factory: pytest.TempPathFactory, times: list[float], noise: bytes
) -> None:
    lines = [
        line(i, last=len(times) - 1, time=format(value, ".4")).encode()
        for i, value in enumerate(times)
    ]
    samples = read(
        tmp_path_factory.getbasetemp(), b"".join(noise + b"\n" + text + b"\n" for text in lines)
    )
    assert [step.step_time for step in samples.steps] == times
    assert (samples.last, samples.attempts) == (len(times) - 1, 1)
