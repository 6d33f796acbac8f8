# SPDX-License-Identifier: Apache-2.0
"""Logs of MLPerf Training: lines as mlperf_logging's mllog and the submitters' programs print them.

Times and numbers of samples are those of published BERT and Llama 2 runs; all else is computed by
hand.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader
from llmb.measure.result import Result

EVENT = (
    '{prefix}:::MLLOG {{"namespace": "", "time_ms": {time}, "event_type": "{kind}", "key": "{key}",'
    ' "value": {value}, "metadata": {{"file": "/workspace/train.py", "lineno": 1706{more}}}}}\n'
)


def event(
    key: str, time: int, value: str = "null", more: str = "", prefix: str = "0: ", kind: str = "X"
) -> str:
    return EVENT.format(prefix=prefix, time=time, kind=kind, key=key, value=value, more=more)


def run(status: str = "success", rates: tuple[float, ...] = (), benchmark: str = "bert") -> str:
    return "".join(
        [
            "/opt/x.py:7: UserWarning: 401 Client Error is ignored\n",
            event("submission_benchmark", 1744838710000, f'"{benchmark}"'),
            event("run_start", 1744838717800),
            *(event("tracked_stats", 1744838800000, f'{{"throughput": {rate}}}') for rate in rates),
            event("train_samples", 1744839180559, "2320253"),
            event("run_stop", 1744839180560, more=f', "status": "{status}"'),
            event("tracked_stats", 1744839180560, '{"throughput": 1.0}'),
        ]
    )


def read(folder: Path, log: str) -> Result:
    path = folder / "result_0.txt"
    path.write_text(log, encoding="utf-8")
    return result_of_log(path, LogReader())


def test_a_run_that_reached_its_target(tmp_path: Path) -> None:
    got = read(tmp_path, run())
    assert (got.status, got.reason, got.cause) == ("Success", None, None)
    assert got.metrics.headline == "time_to_train"
    assert got.metrics.mean("time_to_train") == pytest.approx(462.760)
    assert got.metrics.mean("samples_per_second") == pytest.approx(2320253 / 462.76)


def test_a_number_of_hundreds_of_digits_is_ignored(tmp_path: Path) -> None:
    got = read(tmp_path, event("train_samples", 1744838717900, "1" + "0" * 400) + run())
    assert got.metrics.mean("samples_per_second") == pytest.approx(2320253 / 462.76)


def test_the_time_of_a_run_that_began_again_is_that_of_its_last_attempt(tmp_path: Path) -> None:
    killed = event("init_start", 1744838000000) + event("run_start", 1744838100000)
    again = event("init_start", 1744838701000) + run(rates=(5.0, 7.0, 6.0))
    got = read(
        tmp_path, killed + event("tracked_stats", 1744838200000, '{"throughput": 9}') + again
    )
    assert got.metrics.mean("time_to_train") == pytest.approx(462.760)
    assert got.metrics.mean("samples_per_second") == 6.0
    ended = read(tmp_path, run() + event("init_start", 1744839180999))
    assert ended.metrics.mean("time_to_train") == pytest.approx(462.760)


def test_a_rank_that_begins_late_changes_nothing(tmp_path: Path) -> None:
    late = event("init_start", 1744838711000, prefix="1: ")
    start = event("run_start", 1744838717800)
    got = read(tmp_path, run().replace(start, start + late))
    assert got.metrics.mean("time_to_train") == pytest.approx(462.760)


def test_a_run_with_steps_and_without_an_end_has_no_note_on_its_time(tmp_path: Path) -> None:
    steps = "".join(
        f"Training epoch 0, iteration {n}/49 | train_step_timing in s: 2.5 | reduced_train_loss: 9\n"
        for n in range(50)
    )
    got = read(tmp_path, event("run_start", 1744838717800) + steps)
    assert (got.status, got.metrics.step_time) == ("Success", 2.5)
    assert "no time to train" not in (got.reason or "")


def test_a_clock_that_was_set_back_is_named(tmp_path: Path) -> None:
    got = read(tmp_path, run().replace("1744839180560", "1744838700000"))
    assert (got.metrics.mean("time_to_train"), got.reason) == (
        None,
        "no time to train: MLPerf's run_stop is not after its run_start",
    )


def test_the_throughput_is_what_was_logged_while_it_ran(tmp_path: Path) -> None:
    got = read(tmp_path, run(rates=(5.0, 7.0, 6.0)))
    assert got.metrics.mean("samples_per_second") == 6.0


def test_gpt3_counts_tokens(tmp_path: Path) -> None:
    got = read(tmp_path, run(rates=(5154997.0,), benchmark="gpt3"))
    assert got.metrics.mean("tokens_per_second") == 5154997.0
    assert "samples_per_second" not in got.metrics.measured


def test_samples_of_the_last_line(tmp_path: Path) -> None:
    log = event("run_start", 1745926251617) + event(
        "run_stop", 1745927530858, more=', "samples_count": 3072, "status": "success"'
    )
    got = read(tmp_path, log)
    assert got.metrics.mean("time_to_train") == pytest.approx(1279.241)
    assert got.metrics.mean("samples_per_second") == pytest.approx(3072 / 1279.241)


def test_an_aborted_run_has_failed(tmp_path: Path) -> None:
    got = read(tmp_path, run("aborted"))
    assert (got.status, got.reason) == ("Failed", "MLPerf's run_stop has the status aborted")


def test_a_run_without_its_end_has_failed(tmp_path: Path) -> None:
    got = read(tmp_path, run().partition("0: :::MLLOG")[0] + event("run_start", 1744838717800))
    assert (got.status, got.reason, got.cause) == ("Failed", "no run_stop", None)


def test_events_of_every_rank_are_one_run(tmp_path: Path) -> None:
    log = "".join(
        event("run_start", 1000 + rank, prefix=f"{rank}: ") for rank in range(1, 5)
    ) + "".join(
        event("run_stop", 9000 + rank, more=', "status": "success"', prefix=f"{rank}: ")
        for rank in range(1, 5)
    )
    assert read(tmp_path, log).metrics.mean("time_to_train") == 8.0
    again = event("run_start", 20000) + event("run_stop", 21500, more=', "status": "success"')
    assert read(tmp_path, log + again).metrics.mean("time_to_train") == 1.5


@pytest.mark.parametrize("end", range(2, 160, 7))
def test_a_cut_line_is_no_event(end: int, tmp_path: Path) -> None:
    whole = event("run_stop", 9000, more=', "status": "success"')
    assert read(tmp_path, event("run_start", 1000) + whole[:-end]).status == "Failed"


def test_parse_shows_the_time_to_train(tmp_path: Path, llmb_here: Callable[..., Any]) -> None:
    log = tmp_path / "result_0.txt"
    log.write_text(run(), encoding="utf-8")
    done = llmb_here("parse", log)
    assert done.returncode == 0, done.stderr
    assert "time_to_train" in done.stdout
    assert "462.8" in done.stdout
