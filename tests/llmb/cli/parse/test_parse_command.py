# SPDX-License-Identifier: Apache-2.0
"""Tests of parse on a log of any name, folders, a pipe; of results and fixes where a plugin fails,
or is gone.
"""

import contextlib
import errno
import gzip
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.flops import Flops
from llmb.errors import PluginError
from llmb.plugins.loaded import Plugins

Wording = Callable[..., None]

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def steps(seconds: float) -> str:
    """A log of 50 steps of ``seconds`` each."""
    return "".join(
        f"Training epoch 0, iteration {i}/49 | train_step_timing in s: {seconds}\n"
        for i in range(50)
    )


@pytest.mark.parametrize(
    "name", ["log-pretrain_nemotron4_15b_bf16_64.out", "train.log", "old/slurm-4711.out"]
)
def test_parse_of_one_log_whatever_its_name(name: str, tmp_path: Path, llmb_run: Command) -> None:
    log = tmp_path / name
    log.parent.mkdir(exist_ok=True)
    log.write_text(steps(2.75))
    (tmp_path / "log-other.out").write_text(steps(9.0))
    done = llmb_run("parse", name, "--format", "json")
    (one,) = json.loads(done.stdout)["results"]
    assert (done.returncode, one["status"], one["path"]) == (0, "Success", name)
    assert one["time_mean_seconds"] == pytest.approx(2.75)


def test_parse_of_several_logs_and_folders(
    tmp_path: Path, llmb_run: Command, wording: Wording
) -> None:
    for name, seconds in (("a.log", 1.0), ("b/log-x_731_0.out", 2.0), ("b/log-x_731_1.out", 3.0)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(steps(seconds))
    done = llmb_run("parse", "a.log", "b", "a.log", "b/log-x_731_0.out", "--format", "csv")
    assert [line.split(",")[2] for line in done.stdout.splitlines()[1:]] == ["1.0", "3.0", "2.0"]
    done = llmb_run("parse", "a.log", "none.log")
    assert (done.returncode, done.stdout) == (2, "")
    wording("parse", done.stderr)


@pytest.mark.parametrize("packed", [False, True])
def test_parse_of_what_comes_through_a_pipe(
    packed: bool, tmp_path: Path, llmb_run: Command
) -> None:
    text = steps(2.75).encode()
    with (tmp_path / "log").open("wb+") as file:
        file.write(gzip.compress(text) if packed else text)
        file.seek(0)
        done = llmb_run("parse", "-", "--format", "json", stdin=file)
    (one,) = json.loads(done.stdout)["results"]
    assert (done.returncode, one["experiment"], one["path"], one["status"]) == (
        0,
        "stdin",
        "-",
        "Success",
    )
    assert one["time_mean_seconds"] == pytest.approx(2.75)


def test_two_pipes_are_two_logs(tmp_path: Path, llmb_run: Command) -> None:
    """As bash makes them of <(zcat a.gz) <(zcat b.gz)."""
    pipes = {tmp_path / "a": 2.75, tmp_path / "b" / "a": 3.25}
    (tmp_path / "b").mkdir()
    for pipe in pipes:
        os.mkfifo(pipe)
    text = {pipe: pipe.with_name(f"{pipe.name}.txt") for pipe in pipes}
    for pipe, file in text.items():
        file.write_text(steps(pipes[pipe]))
    with contextlib.ExitStack() as stack:
        for pipe, file in text.items():
            stack.enter_context(subprocess.Popen(["sh", "-c", 'cat "$1" > "$2"', "sh", file, pipe]))
        done = llmb_run("parse", *pipes, "--format", "json")
    found = json.loads(done.stdout)["results"]
    assert {Path(one["path"]): one["time_mean_seconds"] for one in found} == {
        pipe: pytest.approx(seconds) for pipe, seconds in pipes.items()
    }


def test_parse_of_an_earlier_attempts_log_reads_that_one(install: Any, llmb_here: Command) -> None:
    run = install.measured("a1", 2.75)
    later = run.directory / "attempt-2" / run.log.name
    later.parent.mkdir()
    later.write_text(steps(3.25))
    for log, seconds, run_id in ((run.log, 2.75, None), (later, 3.25, "a1")):
        (one,) = json.loads(llmb_here("parse", log, "--format", "json").stdout)["results"]
        assert (one["time_mean_seconds"], one["run"]) == (pytest.approx(seconds), run_id)


def test_a_plugin_that_fails_to_read_its_log_stops_nothing(
    install: Any, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PluginError("x:y is broken")

    monkeypatch.setattr(Plugins, "parse", fail)
    for run_id in ("a1", "b1"):
        install.measured(run_id, 2.75)
    done = llmb_here("results", "--format", "json", "--install", install.folder)
    assert [one["time_mean_seconds"] for one in json.loads(done.stdout)["results"]] == [
        pytest.approx(2.75)
    ] * 2
    assert done.stderr.count("x:y is broken") == 1


def test_tflops_and_mfu_follow_the_own_formula_of_a_plugin(
    install: Any, llmb_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.measured("a1", 2.75)
    asked = ("results", "--format", "json", "--install", install.folder)
    (before,) = json.loads(llmb_here(*asked).stdout)["results"]
    double = Flops(
        convention="acme-2",
        terms={"layers": 1.5 * before["model_flops"], "head": before["model_flops"] / 2},
    )
    monkeypatch.setattr(Plugins, "flops", lambda *_: double)
    (one,) = json.loads(llmb_here(*asked).stdout)["results"]
    assert one["flops_convention"] == "acme-2"
    for name in ("model_flops", "model_tflops_per_gpu", "mfu"):
        assert one[name] == pytest.approx(2 * before[name])
    (log,) = json.loads(llmb_here("parse", install.folder, "--format", "json").stdout)["results"]
    assert log["flops_convention"] == "acme-2"
    assert "by the formula acme-2" in llmb_here("explain", "a1", "--install", install.folder).stdout

    def fail(*_: object) -> None:
        raise PluginError("plugin x:y failed in llmb_flops: KeyError: 'z'")

    monkeypatch.setattr(Plugins, "flops", fail)
    install.measured("b1", 2.75)
    done = llmb_here(*asked)
    rows = {row["run"]: row for row in json.loads(done.stdout)["results"]}
    # What was measured keeps its formula; a new run has llmb's.
    for run_id, expected in (("a1", one), ("b1", before)):
        assert rows[run_id]["flops_convention"] == expected["flops_convention"]
        assert rows[run_id]["mfu"] == expected["mfu"]
    assert "llmb_flops" in done.stderr


def test_what_a_log_is_of_is_reported_where_its_name_does_not(
    tmp_path: Path, llmb_here: Command
) -> None:
    (tmp_path / "train.log").write_text(steps(2.67))
    found = ["-w", "nemotron4-15b", "--dtype", "bf16", "--scale", 64, "--gpu-type", "h100"]
    (bare,) = json.loads(llmb_here("parse", tmp_path / "train.log", "--format", "json").stdout)[
        "results"
    ]
    assert (bare["tokens_per_second"], bare["verdict"]) == (None, "NO_REFERENCE")
    (one,) = json.loads(
        llmb_here("parse", tmp_path / "train.log", *found, "--format", "json").stdout
    )["results"]
    assert (one["verdict"], one["configuration"]["gbs"], round(one["tokens_per_second"])) == (
        "PASS",
        256,
        392725,
    )
    (other,) = json.loads(
        llmb_here("parse", tmp_path / "train.log", *found, "--gbs", 128, "--format", "json").stdout
    )["results"]
    assert (other["verdict"], other["configuration"]["gbs"]) == ("NO_REFERENCE", 128)


def test_what_options_override_is_printed_once_for_all_logs(
    tmp_path: Path, llmb_here: Command, wording: Wording
) -> None:
    for job in (1111, 2222):
        (tmp_path / f"log-pretrain_nemotron4_15b_bf16_gpus64_gbs256_{job}.out").write_text(
            steps(2.67)
        )
    done = llmb_here(
        "parse", tmp_path, "--dtype", "fp8", "--scale", 64, "--gbs", 128, "--format", "json"
    )
    settings = [
        (one["configuration"]["dtype"], one["configuration"]["gbs"])
        for one in json.loads(done.stdout)["results"]
    ]
    assert settings == [("fp8", 128)] * 2
    wording("parse", done.stderr)


@pytest.mark.parametrize(
    "words",
    [
        ["-w", "nemotron5_15b"],
        ["-w", "nemotron4"],
        ["--dtype", "fp9"],
        ["--gpu-type", "h101"],
        ["--scale", "0"],
    ],
)
def test_what_a_log_is_of_is_given_wrongly(
    words: list[str], tmp_path: Path, llmb_here: Command, wording: Wording
) -> None:
    (tmp_path / "train.log").write_text(steps(2.67))
    done = llmb_here("parse", tmp_path / "train.log", *words)
    assert (done.returncode, done.stdout) == (2, "")
    wording("parse", done.stderr)


def test_one_log_or_record_that_cannot_be_read_stops_no_other(
    install: Any, llmb_here: Command, wording: Wording
) -> None:
    good, damaged, lost = (install.measured(name, 2.7) for name in ("a1", "b1", "c1"))
    (damaged.directory / "llmb-run.json").write_text("{")
    lost.log.unlink()
    lost.log.mkdir()
    (lost.work / "log-shut.out").symlink_to(lost.log)
    done = llmb_here("parse", install.folder, "--format", "json")
    found = {one["path"]: one for one in json.loads(done.stdout)["results"]}
    assert (done.returncode, set(found)) == (0, {str(good.log), str(damaged.log)})
    assert found[str(damaged.log)]["run"] is None
    wording("parse", done.stderr)
    done = llmb_here("results", "--format", "json", "--install", install.folder)
    rows = {one["run"]: one for one in json.loads(done.stdout)["results"]}
    assert (done.returncode, rows["a1"]["status"], rows["c1"]["status"]) == (
        3,
        "Success",
        "Unknown",
    )
    assert rows["c1"]["reason"].startswith(str(lost.log))
    assert os.strerror(errno.EISDIR) in rows["c1"]["reason"]


def test_a_folder_that_cannot_be_read_is_reported(
    tmp_path: Path, llmb_here: Command, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    (tmp_path / "log-x.out").write_text(steps(2.75))
    locked, scan = tmp_path / "locked", os.scandir
    locked.mkdir()

    def scandir(path: str) -> Any:
        if path == str(locked):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    done = llmb_here("parse", tmp_path, "--format", "csv")
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 2)
    wording("parse", done.stderr)


def test_results_of_a_workload_whose_plugin_is_gone(
    install: Any, llmb_here: Command, wording: Wording
) -> None:
    install.run(
        "g1",
        replace(install.job("nemotron4_15b", "bf16", 16), workload="pretrain_gone"),
        steps(2.0),
    )
    install.measured("a1", 2.75)
    words = ("results", "--format", "json", "--install", install.folder, "-w")
    (one,) = json.loads(llmb_here(*words, "gone_15b").stdout)["results"]
    assert (one["run"], one["status"]) == ("g1", "Success")
    done = llmb_here(*words, "nemotronh")
    assert json.loads(done.stdout)["results"] == []
    wording("parse", done.stderr)
    wording("parse", llmb_here(*words, "gine").stderr)


def test_the_fix_of_a_failed_run_names_its_workload(
    install: Any, llmb_here: Command, wording: Wording
) -> None:
    log = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    install.run("f1", install.job("llama3.1_8b", "bf16", 8), log, "FAILED")
    found = llmb_here("explain", "f1", "--install", install.folder).stdout
    wording("parse", str(" ".join(found.split())))
