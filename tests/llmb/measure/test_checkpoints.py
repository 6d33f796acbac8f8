# SPDX-License-Identifier: Apache-2.0
"""Tests what results say of checkpoints: the log's times, the files, and what is missing of
either.
"""

import csv
import io
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from llmb.contract.record import RunRecord
from llmb.contract.samples import CheckpointEvent
from llmb.measure.checkpoints import checkpoints_of, in_words

Wording = Callable[..., None]

Command = Callable[..., "subprocess.CompletedProcess[str]"]

SAVED = CheckpointEvent(
    kind="save", ranks=(0, 1), max_seconds=4.5, rank0_seconds=4.389, iteration=50
)
LOADED = CheckpointEvent(kind="load", ranks=(0,), max_seconds=9.712, rank0_seconds=9.712)
NAME = "default--None=0.0000-epoch=0-consumed_samples=12800.0"
SAVE_LINE = (
    "[NeMo I 2025-04-11 14:48:45 nemo_logging:393] Global Checkpoint Save : Rank: 0 : Iteration: 50"
    " : Start time: 1744408121.151s : Save duration: 4.389s\n"
)
LOAD_LINE = (
    "[NeMo I 2025-04-11 14:46:18 nemo_logging:393] Global Checkpoint Load : Rank : 0 : "
    "Start time : 1744407969.270s : Time spent in load_checkpoint: 9.712s\n"
)


def write(work: Path, *sizes: int, before: str = "", name: str = NAME) -> Path:
    """A checkpoint with files of weights of these sizes, under the folder that ranks start in."""
    folder = work / before / "nemo_experiments" / "default" / "checkpoints" / name
    (folder / "weights").mkdir(parents=True)
    (folder / "weights" / ".metadata").write_bytes(b"x" * 10)
    for number, size in enumerate(sizes):
        (folder / "weights" / f"__{number}_0.distcp").write_bytes(b"x" * size)
    return folder


@pytest.mark.parametrize("before", ["", "code"])
def test_a_save_has_its_files_and_times(before: str, tmp_path: Path, wording: Wording) -> None:
    folder = write(tmp_path, 1000, 500, before=before)
    found = checkpoints_of([SAVED], tmp_path, save=True)
    assert found is not None
    assert found.saved is not None
    assert (found.saved.folder, found.saved.files, found.saved.bytes) == (str(folder), 2, 1500)
    assert (found.saved.seconds, found.saved.rank0_seconds, found.saved.iteration) == (
        4.5,
        4.389,
        50,
    )
    assert (found.loaded, found.problems) == (None, ())
    wording("results", "\n".join(in_words(found)))


def test_a_load_has_its_time(tmp_path: Path, wording: Wording) -> None:
    found = checkpoints_of([LOADED], tmp_path, load="/lustre/there")
    assert found is not None
    assert found.loaded is not None
    assert (found.loaded.folder, found.loaded.seconds, found.problems) == (
        "/lustre/there",
        9.712,
        (),
    )
    wording("results", "\n".join(in_words(found)))


def test_a_run_without_any_has_none(tmp_path: Path) -> None:
    assert checkpoints_of([], tmp_path) is None
    assert checkpoints_of([], tmp_path / "nowhere") is None
    assert in_words(None) == []


@pytest.mark.parametrize("sizes", [(), (0, 0)])
def test_the_log_says_saved_and_no_file_is_there(
    sizes: tuple[int, ...], tmp_path: Path, wording: Wording
) -> None:
    if sizes:
        write(tmp_path, *sizes)
    found = checkpoints_of([SAVED], tmp_path, save=True)
    assert found is not None
    (problem,) = found.problems
    wording("results", str(problem))
    not_requested = checkpoints_of([SAVED], tmp_path)
    assert not_requested is not None
    assert not_requested.problems == ()


@pytest.mark.parametrize(
    "names",
    [
        ["mp_rank_00/model_optim_rng.pt", "mp_rank_01/model_optim_rng.pt"],
        ["__0_0.distcp", "__0_1.distcp", "common.pt", "rng_state.pt", "metadata.json"],
        ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "config.json"],
    ],
)
def test_the_files_of_every_kind_of_checkpoint_count(names: list[str], tmp_path: Path) -> None:
    checkpoint = tmp_path / "there" / "iter_0000050"
    for name in names:
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_bytes(b"x" * 100)
    event = replace(SAVED, folder=str(tmp_path / "there"))
    found = checkpoints_of([event], tmp_path, save=True)
    assert found is not None
    assert found.saved is not None
    assert (found.saved.folder, found.saved.files, found.problems) == (str(checkpoint), 2, ())
    assert found.saved.bytes == 200


@pytest.mark.parametrize(("sizes", "name"), [((), "common.pt"), ((0, 0), "rng_state.pt")])
def test_what_is_left_beside_lost_shards_is_no_checkpoint(
    sizes: tuple[int, ...], name: str, tmp_path: Path
) -> None:
    (write(tmp_path, *sizes) / "weights" / name).write_bytes(b"x" * 100)
    found = checkpoints_of([SAVED], tmp_path, save=True)
    assert found is not None
    assert found.problems


def test_only_files_with_content_count(tmp_path: Path) -> None:
    weights = write(tmp_path, 100, 0) / "weights"
    (weights / "__2_0.distcp").mkdir()
    (weights / "__3_0.distcp").symlink_to(tmp_path / "nowhere")
    found = checkpoints_of([SAVED], tmp_path, save=True)
    assert found is not None
    assert found.saved is not None
    assert (found.saved.files, found.saved.bytes) == (1, 100)


def test_files_are_there_and_the_log_does_not_say_saved(tmp_path: Path, wording: Wording) -> None:
    write(tmp_path, 7)
    found = checkpoints_of([], tmp_path)
    assert found is not None
    (problem,) = found.problems
    wording("results", str(problem))
    wording("results", "\n".join(in_words(found)))


@pytest.mark.parametrize("folder_is_there", [True, False])
def test_asked_for_and_nothing_came_of_it(
    folder_is_there: bool, tmp_path: Path, wording: Wording
) -> None:
    if folder_is_there:
        write(tmp_path)
    found = checkpoints_of([], tmp_path, save=True, load="/lustre/there")
    assert found is not None
    save, load = found.problems
    wording("results", save)
    wording("results", str(load))


def test_of_a_run_that_has_not_ended_nothing_is_missed(tmp_path: Path) -> None:
    found = checkpoints_of([], tmp_path, save=True, load="/lustre/there", ended=False)
    assert found is not None
    assert found.problems == ()


def test_the_last_checkpoint_with_weights_counts(tmp_path: Path) -> None:
    write(tmp_path, 5, name="first")
    write(tmp_path, 6, 6, name="second")
    write(tmp_path, name="unfinished")
    found = checkpoints_of([replace(SAVED, max_seconds=1.0), SAVED], tmp_path)
    assert found is not None
    assert found.saved is not None
    assert found.saved.folder is not None
    assert found.saved.folder.endswith("second")
    assert (found.saved.files, found.saved.seconds) == (2, 4.5)


class HandMade(Protocol):
    """The fixture of conftest.py."""

    folder: Path

    def switched(self, run_id: str, log: str, **switches: Any) -> RunRecord: ...


def step_lines(count: int = 50, seconds: float = 2.67) -> str:
    return "".join(
        f"Training epoch 0, iteration {i}/{count - 1} | reduced_train_loss: 12.8 |"
        f" train_step_timing in s: {seconds}\n"
        for i in range(count)
    )


@pytest.fixture
def results(install: HandMade, llmb_here: Command) -> Callable[..., dict[str, dict[str, Any]]]:
    """The results by run id, as JSON; the command ends well."""

    def read() -> dict[str, dict[str, Any]]:
        done = llmb_here("results", "--install", install.folder, "--format", "json")
        assert done.returncode == 0, done.stderr
        return {row["run"]: row for row in json.loads(done.stdout)["results"]}

    return read


Results = Callable[..., dict[str, dict[str, Any]]]


def test_a_run_that_saved(
    install: HandMade, results: Results, llmb_here: Command, wording: Wording
) -> None:
    run = install.switched("sav1", step_lines() + SAVE_LINE, save_checkpoint=True)
    folder = write(run.work, 2000, 2000)
    row = results()["sav1"]
    assert (row["status"], row["reason"], row["verdict"]) == ("Success", None, "PASS")
    assert row["checkpoints"] == {
        "saved": {
            "folder": str(folder),
            "files": 2,
            "bytes": 4000,
            "seconds": 4.389,
            "rank0_seconds": 4.389,
            "iteration": 50,
        },
        "loaded": None,
        "problems": [],
    }
    shown = llmb_here("results", "--install", install.folder)
    wording("results", shown.stdout)
    (line,) = csv.DictReader(
        io.StringIO(llmb_here("results", "--install", install.folder, "--format", "csv").stdout)
    )
    assert (line["checkpoints_saved_seconds"], line["checkpoints_saved_files"], line["saves"]) == (
        "4.389",
        "2",
        "True",
    )
    found = llmb_here("explain", "sav1", "--install", install.folder).stdout
    wording("results", str(found))


def test_a_run_whose_checkpoint_is_not_there_says_why(
    install: HandMade, results: Results, wording: Wording
) -> None:
    install.switched("lost", step_lines() + SAVE_LINE, save_checkpoint=True)
    install.switched("none", step_lines(), save_checkpoint=True)
    write(install.switched("half", step_lines(), save_checkpoint=True).work, 10)
    rows = results()
    wording("results", str(rows["lost"]["reason"]))
    wording("results", rows["none"]["reason"])
    wording("results", rows["half"]["reason"])
    assert {row["status"] for row in rows.values()} == {"Success"}


def test_a_run_that_loaded_is_compared_with_nothing(
    install: HandMade, results: Results, wording: Wording
) -> None:
    install.switched("load", LOAD_LINE + step_lines(1, 30.0), load_checkpoint="/lustre/there")
    install.switched("cold", step_lines(1, 30.0), load_checkpoint="/lustre/there")
    rows = results()
    assert rows["load"]["checkpoints"]["loaded"] == {
        "folder": "/lustre/there",
        "seconds": 9.712,
        "rank0_seconds": 9.712,
    }
    own = rows["load"]
    assert (own["status"], own["verdict"]) == ("Success", "NO_REFERENCE")
    assert own["reason"] == own["verdict_reason"]
    wording("results", own["reason"])
    wording("results", str(rows["cold"]["reason"]))


def test_logs_without_a_record_have_theirs_too(tmp_path: Path, llmb_here: Command) -> None:
    name = "pretrain_nemotron4_15b_bf16_gpus64_tp2_pp1_cp1_vpNone_mbs2_gbs256"
    for kind in ("good", "lost"):
        (tmp_path / kind / name).mkdir(parents=True)
        (tmp_path / kind / name / f"log-{name}.out").write_text(step_lines() + SAVE_LINE)
    write(tmp_path / "good" / name, 10, before="code")
    rows = json.loads(llmb_here("parse", tmp_path, "--format", "json").stdout)["results"]
    assert [row["checkpoints"]["saved"]["files"] for row in rows] == [1, 0]
    # neither has a reference: a checkpoint on another machine is no reason
    for row in rows:
        assert row["reason"] == row["verdict_reason"]
