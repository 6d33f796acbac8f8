# SPDX-License-Identifier: Apache-2.0
"""Feeds the readers of logs with wild mixtures of what logs hold: none may fail, whatever it is
given.

LLMB_TEST_FUZZ=100000 sets how many inputs are tried.
"""

import gzip
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.contract.spec import Workload
from llmb.contract.window import Window
from llmb.measure.describe_log import describe_log
from llmb.measure.facts import facts_of, invalid_because
from llmb.measure.failure_causes import table
from llmb.measure.log_reader import progress, read_log, read_on
from llmb.measure.root_cause import root_cause
from llmb.measure.statistics import summarize

INPUTS = int(os.environ.get("LLMB_TEST_FUZZ", "1000"))
STEP = (
    b"[default0]:Training epoch 0, iteration 7/49 | lr: 7.496e-06 | global_batch_size: 128 |"
    b" global_step: 7 | peak_memory_usage: 70833405952 | reduced_train_loss: 11.96 |"
    b" train_step_timing in s: 12.39 | consumed_samples: 9"
)
PIECES = [
    STEP,
    STEP.replace(b"7/49", b"8/49"),
    STEP.replace(b"12.39", b"1.2e+03"),
    STEP.replace(b"11.96", b"nan"),
    (
        b"Epoch 0: : 9%|\xe2\x96\x88| 9/100 [07:57<00:00, reduced_train_loss=7.310,"
        b" train_step_timing in s=3.590]"
    ),
    b" iteration        1/      50 | elapsed time per iteration (ms): 20289.1 | lm loss: 1.2E+01 |",
    b"Step Time : 2.69s GPU utilization: 611.5MODEL_TFLOP/s/GPU",
    b"train_step_timing in s: [11.85, 6.98, ",
    (
        b"Global Checkpoint Save : Rank: 0 : Iteration: 50 : Start time: 1744408121.151s : Save"
        b" duration: 4.389s"
    ),
    (
        b"Global Checkpoint Load : Rank : 0 : Start time : 1744407969.270s : Time spent in"
        b" load_checkpoint: 9.712s"
    ),
    (
        b'llmb node n1: {"driver": "570.86.15", "gpus": 8, "max_sm_clock_mhz": 1980,'
        b' "power_limit_w": 7e2}'
    ),
    b"nan",
    b"n1:7:9 [0] NCCL INFO Using network Socket",
    b"NCCL version 2.26.3+cuda12.9",
    b"using world size: 99999999999",
    b"successfully saved checkpoint from iteration      50 to /ckpt [ t 1/1, p 1/1 ]",
    b"    save-checkpoint ................................: (24895.07, 24895.13)",
    b"successfully loaded checkpoint from /ckpt [ t 1/1, p 1/1 ] at iteration 50",
    (
        b"completed step: 4, seconds: 15.570, TFLOP/s/device: 508.371, Tokens/s/device: 1055.949,"
        b" loss: 0.1"
    ),
    (
        b"step: 10  loss: 4.1704  grad_norm: 1.8422  memory: 0.69GiB(0.72%)  tps: 221,070  tflops:"
        b" 15.83  mfu: 1.60%"
    ),
    (
        b"Trainer is initialized with local batch size 8, global batch size 64, gradient"
        b" accumulation steps 1, sequence length 8192, total steps 50 (warmup 2)"
    ),
    b"Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1",
    (
        b"{'train_runtime': 110.5948, 'train_samples_per_second': 28.93, 'train_steps_per_second':"
        b" 1.808, 'epoch': 3.0}"
    ),
    b"`Trainer.fit` stopped: `max_steps=50` reached.",
    b"Traceback (most recent call last):",
    b"  File 'x'",
    b"train_step_timing in s",
    b"iteration ",
    b"1e999999",
    b"-inf",
    b"9" * 400,
    b": ",
    b"=",
    b" | ",
    b"\x1b[31m",
    b"\x1b]0;",
    b"Last error:",
    b"\xff\xfe",
    b"\x00",
    b"[rank3]: ",
    b"0: ",
    b"\x1f\x8b",
    b"]",
    b"/",
    "\u0667/\u0669".encode(),
    *(text.encode() for row in table().causes for text in (*row.text, *row.beside)),
]
NAMES = [
    "log-",
    "pretrain_",
    "pretraining_",
    "nemotron4_",
    "llama3.1_",
    "llama31_",
    "340b_",
    "70b_",
    "fp8_",
    "bf16",
    "gpus128_",
    "tp8_",
    "_gbs512_",
    "vpNone",
    "_nsys",
    "_nccltrace",
    "389757",
    "_0",
    "account-me.",
    ".out",
    ".gz",
    "é",
    " ",
]


def wild(chance: random.Random) -> bytes:
    """A log of some lines, some of them damaged."""
    content = b""
    for _ in range(chance.randrange(12)):
        piece = chance.choice(PIECES)
        if chance.random() < 0.4:
            start = chance.randrange(len(piece) + 1)
            piece = piece[start : chance.randrange(start, len(piece) + 1)]
        if piece and chance.random() < 0.2:
            at = chance.randrange(len(piece))
            piece = piece[:at] + chance.randbytes(1) + piece[at + 1 :]
        content += piece + chance.choice([b"\n", b"\r", b"\r\n", b"", b" "])
    return gzip.compress(content)[: chance.randrange(8, 200)] if chance.random() < 0.02 else content


@pytest.mark.timeout(7200)
@pytest.mark.fault("logs")
def test_no_log_makes_a_reader_fail(
    tmp_path: Path, workloads: dict[str, Workload], seen: Callable[..., None]
) -> None:
    chance = random.Random(20250411)
    path = tmp_path / "log"
    for _ in range(INPUTS):
        content = wild(chance)
        path.write_bytes(content)
        samples = read_log(path)
        assert (samples.attempts > 0) == bool(samples.steps)
        if samples.steps and samples.last is not None:
            window = Window(0, samples.last)
            summarize(samples, window)
            invalid_because(samples, window)
        facts_of(samples)
        progress(path)
        cause = root_cause([path])
        assert cause is None or cause.line.isprintable()
        cut = chance.randrange(len(content) + 1)
        path.write_bytes(content[:cut])
        state = read_on(path).state
        path.write_bytes(content)
        read_on(path, state=state)
        name = "".join(chance.choices(NAMES, k=chance.randrange(9)))
        found = describe_log(tmp_path / (name or "x"), samples, workloads)
        assert not found.workload or found.workload in workloads
    seen(tried=INPUTS, tracebacks=0)  # the first would have ended the test
