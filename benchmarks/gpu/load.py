# SPDX-License-Identifier: Apache-2.0
"""A matrix product at the board's own power limit, sampled at 1 Hz, and what sampling costs."""

import itertools
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

from gpu import driver
from gpu.context import Context
from llmb_workloads import nvml, telemetry

SIZE, SMALL_SIZE = 8192, 512
SECONDS, SMALL_SECONDS = 90.0, 4.0
BLOCK, SMALL_BLOCK = 20.0, 2.0  # seconds with, or without telemetry


def run(context: Context) -> None:
    """Sample a long product, time each call, then alternate blocks with and without telemetry."""
    size = SIZE if context.is_gpu else SMALL_SIZE
    with nvml.opened() as library:
        gpus = [] if library is None else nvml.gpus_of(library)
        samples, steps = _sampled(context, size, library, gpus)
        if gpus:
            _record_samples(context, samples)
            _record_calls(context, "idle", library, gpus)
        else:
            context.record("samples", None, "no NVIDIA driver: no samples, only speed")
    rate = _rate(steps)
    tflops = 2 * size**3 * rate / 1e12
    text = f"{size} x {size} products: {tflops:.3g} TFLOPS over {steps[-1]['seconds']:.0f} s"
    context.record("tflops", tflops, text)
    context.record("products_per_second", _each_second(steps))
    if gpus:
        _record_cost(context, size)


def _sampled(
    context: Context, size: int, library: Any, gpus: list[Any]
) -> tuple[list[telemetry.Sample], list[dict[str, float]]]:
    """Return a sample of each second of the product, and the product's own lines."""
    samples: list[telemetry.Sample] = []
    lines: list[str] = []
    seconds = SECONDS if context.is_gpu else SMALL_SECONDS
    with context.start_torch("gpu.burn", seconds, size) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
        reader.start()
        timed = False
        while process.poll() is None:
            if gpus and lines:
                now = time.time()
                samples.append(
                    telemetry.read_sample(library, gpus, with_rare=True, log=None, now=now)
                )
                if not timed and len(lines) > 2:
                    _record_calls(context, "load", library, gpus)
                    timed = True
            time.sleep(1)
        reader.join()
    (context.kept / "samples.jsonl").write_text("".join(map(telemetry.to_line, samples)))
    (context.kept / "products.jsonl").write_text("".join(lines))
    return samples, [json.loads(line) for line in lines]


def _record_samples(context: Context, samples: list[telemetry.Sample]) -> None:
    summary = telemetry.summarize(samples)
    context.record("samples", summary, f"telemetry: {json.dumps(summary)}")
    powers, times = [s.power_w[0] for s in samples], [s.time for s in samples]
    energies = [s.energy_j[0] for s in samples]
    if None in (*powers, *energies) or len(samples) < 3:
        return
    # The trapezium rule over the samples: an independent way to the energy counter's value.
    joules = sum(
        (a + b) / 2 * (end - begin)
        for a, b, begin, end in zip(powers, powers[1:], times, times[1:], strict=False)
    )
    counted = energies[-1] - energies[0]
    values = {"counter_j": counted, "power_times_seconds_j": round(joules, 1)}
    ratio = counted / joules if joules else float("nan")
    text = f"energy counter: {counted:.0f} J, power over time: {joules:.0f} J, ratio {ratio:.3f}"
    context.record("energy", values, text)


def _record_calls(context: Context, name: str, library: Any, gpus: list[Any]) -> None:
    """Record the milliseconds of each sampled call: median and largest of 50."""
    times = {}
    for ours, function, _ in driver.SAMPLED:
        took = []
        for _ in range(50):
            begin = time.perf_counter()
            ours(library, gpus[0])
            took.append((time.perf_counter() - begin) * 1000)
        times[function.removeprefix("nvmlDeviceGet")] = {
            "median_ms": round(statistics.median(took), 4),
            "max_ms": round(max(took), 4),
        }
    total = sum(value["median_ms"] for value in times.values())
    text = f"one sample of a GPU ({name}): {total:.2f} ms, medians of 50 calls"
    context.record(f"calls_{name}", times, text)


def _rate(steps: list[dict[str, float]]) -> float:
    return steps[-1]["products"] / steps[-1]["seconds"]


def _each_second(steps: list[dict[str, float]]) -> list[float]:
    return [
        round((b["products"] - a["products"]) / (b["seconds"] - a["seconds"]), 2)
        for a, b in itertools.pairwise(steps)
        if b["seconds"] > a["seconds"]
    ]


def _record_cost(context: Context, size: int) -> None:
    """Record products per second without and with the telemetry process, in the order ABBA."""
    seconds = BLOCK if context.is_gpu else SMALL_BLOCK
    rates: dict[bool, list[float]] = {False: [], True: []}
    cpu = 0.0
    for number, is_sampled in enumerate((False, True, True, False)):
        sampler = _start_telemetry(context, number) if is_sampled else None
        lines = context.run_torch("gpu.burn", seconds, size)
        rates[is_sampled].append(_rate([json.loads(lines[-1])]))
        if sampler is not None:
            before = _cpu_of_ended()
            sampler.terminate()
            sampler.wait()
            cpu += _cpu_of_ended() - before
    without, with_ = (statistics.mean(rates[key]) for key in (False, True))
    share = cpu / (2 * seconds)
    values = {"without": rates[False], "with": rates[True], "cpu_seconds_per_second": share}
    text = (
        f"telemetry every {telemetry.INTERVAL:g} s costs {1 - with_ / without:+.2%} of the speed"
        f" (blocks differ by {_spread(rates[False]):.2%} without it) and {share:.2%} of one core"
    )
    context.record("cost", values, text)


def _cpu_of_ended() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _spread(values: list[float]) -> float:
    return (max(values) - min(values)) / statistics.mean(values)


def _start_telemetry(context: Context, number: int) -> "subprocess.Popen[bytes]":
    """Start the process that a job has beside its ranks."""
    log = context.folder / f"{number}" / "log"
    log.parent.mkdir()
    log.touch()
    argv = [sys.executable, "-S", "-m", "llmb_workloads.telemetry", str(log)]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL)
