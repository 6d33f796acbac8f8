# SPDX-License-Identifier: Apache-2.0
"""How quickly logs are read: a 1 GB NCCL trace against `grep -c` of one word, interleaved, and
10,000 small logs.

The test data goes into a temporary folder (1.2 GB; TMPDIR names another place). Both read from the
page cache.
"""

import statistics
import subprocess
import tempfile
from pathlib import Path

from llmb.measure.log_reader import read_log
from measuring import LLMB_RUN, cpu_seconds, parser, report, run, seconds

# NCCL cuts host names at the first point; the last kind has in each line what llmb looks for first.
HOSTS = {
    "node{:03}": "short names",
    "gpu-worker-{:03}": "longer names",
    "w_{:03}.x": "the worst names",
}
ROUNDS = 7
TRACE_BYTES = 1_000_000_000
LOGS = 10_000
STEPS = 50
WORD = "train_step_timing in s"
TRACE = (
    "{host}:{pid}:{tid} [{gpu}] NCCL INFO {name}: opCount {count:x} sendbuff 0x7f{at:08x} recvbuff"
    " 0x7e{at:08x} count {size} datatype 9 op 0 root 0 comm 0x55{gpu:08x} [nranks=128] stream"
    " 0x56{pid:08x}\n"
)
NAME = "log-pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256_{}.out"
NAMES = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Send", "Recv")


def step_line(step: int, last: int) -> str:
    """One step as NeMo 2 logs it."""
    return (
        f"[default0]:Training epoch 0, iteration {step}/{last} | lr: 4.491e-06 | global_batch_size:"
        f" 256 | global_step: {step} | peak_memory_usage: 72972500992 | memory_allocated:"
        " 34466545664 | reduced_train_loss: 12.81 | train_step_timing in s: 2.693 |"
        f" TFLOPS_per_GPU: 571.8 | consumed_samples: {256 * (step + 1)}\n"
    )


def write_trace(path: Path, host: str, size: int) -> None:
    """A run of 5 steps that traced its collectives in ``size`` bytes; ``host`` is a pattern of the
    hosts' names.
    """
    lines = [
        TRACE.format(
            host=host.format(i % 16),
            pid=1000 + i % 8,
            tid=2000 + i % 97,
            gpu=i % 8,
            name=NAMES[i % len(NAMES)],
            count=i >> 7,
            at=i * 7919,
            size=i % 4096,
        )
        for i in range(50_000)
    ]
    block = "".join(lines).encode()
    with path.open("wb") as stream:
        for step in range(5):
            for _ in range(max(1, size // 5 // len(block))):
                stream.write(block)
            stream.write(step_line(step, 4).encode())


def bench_trace(path: Path, what: str, rounds: int) -> float:
    """Print how long reading takes, and return the median of its ratios to grep."""
    grep = ["grep", "-c", WORD, str(path)]
    assert len(read_log(path).steps) == 5
    times = [
        (
            seconds(lambda: subprocess.run(grep, check=True, capture_output=True)),
            seconds(lambda: read_log(path)),
        )
        for _ in range(rounds)
    ]
    for name, pick in (("least", min), ("median", statistics.median)):
        by_grep, by_us = (pick([pair[index] for pair in times]) for index in (0, 1))
        rate = path.stat().st_size / by_us / 1e6
        print(
            f"{what:34}{name:8}{by_grep:9.3f} s{by_us:9.3f} s{by_us / by_grep:7.2f}{rate:9.0f} MB/s"
        )
    return statistics.median(by_us / by_grep for by_grep, by_us in times)


def bench_small(folder: Path, count: int) -> float:
    """Print how long ``count`` logs of 50 steps take, and return the CPU seconds of all of
    `llmb-run parse`.
    """
    text = "".join(step_line(step, STEPS - 1) for step in range(STEPS))
    for number in range(count):
        (folder / NAME.format(number)).write_text(text)
    reading = seconds(lambda: [read_log(path) for path in folder.glob("log-*.out")])
    parsing = cpu_seconds(
        lambda: run([LLMB_RUN, "parse", str(folder), "--format", "csv"], cwd=folder)
    )
    print(
        f"{count} logs of {STEPS} steps: read in {reading:.2f} s; llmb-run parse in {parsing:.2f} s"
        " of CPU time"
    )
    return parsing


def main() -> None:
    """Print all of it."""
    is_small = parser(__doc__).parse_args().small
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace, small = folder / "trace.out", folder / "small"
        print(f"{'1 GB NCCL trace':42}{'grep -c':>11}{'read_log':>11}{'ratio':>7}")
        for host, what in HOSTS.items():
            write_trace(trace, host, 1_000_000 if is_small else TRACE_BYTES)
            figures[f"NCCL trace of 1 GB, {what} / grep -c"] = bench_trace(
                trace, what, 1 if is_small else ROUNDS
            )
        trace.unlink()
        small.mkdir()
        figures["parse 10,000 logs, s"] = bench_small(small, 20 if is_small else LOGS)
    report(figures)


if __name__ == "__main__":
    main()
