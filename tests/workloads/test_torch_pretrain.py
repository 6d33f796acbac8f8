# SPDX-License-Identifier: Apache-2.0
"""The program trains each architecture for real, however it is started, and refuses what it cannot
do.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from llmb_workloads.torch_pretrain import main

pytestmark = pytest.mark.timeout(1800)  # torch may be installed first

MakeRecipe = Callable[..., dict[str, Any]]
RunRanks = Callable[..., list[tuple[int, str, str]]]
STEP = re.compile(
    r"Training epoch 0, iteration (?P<step>\d+)/(?P<last>\d+) \| lr: 0\.003 \| global_batch_size:"
    r" (?P<gbs>\d+) \| "
    r"global_step: (?P=step) \| peak_memory_usage: \d+ \| memory_allocated: \d+ \| "
    r"reduced_train_loss: (?P<loss>[\d.]+) \| train_step_timing in s: (?P<time>[\d.e-]+) \| "
    r"TFLOPS_per_GPU: (?P<tflops>[\d.e-]+)(?: \| consumed_samples: (?P<consumed>\d+))?"
)
CHECKPOINT_LINE = re.compile(
    r"\[NeMo I \d{4}-\d\d-\d\d \d\d:\d\d:\d\d nemo_logging:393\] Global Checkpoint Save : Rank: 0 :"
    r" Iteration: 3 : "
    r"Start time: \d+\.\d{3}s : Save duration: \d+\.\d{3}s"
)
ALONE: dict[str, str] = {}


def steps_of(log: str) -> list[re.Match[str]]:
    """The step lines of a log; there is nothing else but the opening, and the end."""
    lines = log.splitlines()
    matches = [match for line in lines if (match := STEP.fullmatch(line))]
    assert lines[-1] == f"`Trainer.fit` stopped: `max_steps={len(matches)}` reached."
    assert all(line.startswith("torch_pretrain: ") for line in lines[: -len(matches) - 1])
    return matches


def losses_of(log: str) -> list[float]:
    return [float(match["loss"]) for match in steps_of(log)]


@pytest.fixture(scope="module")
def llama_alone(
    run_ranks: RunRanks, raw_recipe: MakeRecipe, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The log of 50 steps of the tiny llama on one rank."""
    [(code, out, err)] = run_ranks(
        tmp_path_factory.mktemp("llama"), [raw_recipe(global_batch=8)], [ALONE]
    )
    assert (code, err) == (0, "")
    return out


@pytest.mark.slow
def test_llama_learns(llama_alone: str) -> None:
    losses = losses_of(llama_alone)
    assert losses[0] == pytest.approx(7.7, abs=0.3)
    assert mean(losses[-5:]) < mean(losses[:5]) - 2


@pytest.mark.slow
def test_the_log_is_nemos(llama_alone: str) -> None:
    steps = steps_of(llama_alone)
    assert [int(match["step"]) for match in steps] == list(range(50))
    assert {match["last"] for match in steps} == {"49"}
    assert [match["consumed"] for match in steps] == [
        None,
        *(str(8 * step) for step in range(2, 51)),
    ]
    for match in steps:
        assert float(match["tflops"]) * float(match["time"]) == pytest.approx(
            5e8 * 8 / 1e12, rel=2e-3
        )


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["nemotron", "nemotronh"])
def test_the_nemotrons_learn_in_bf16(
    run_ranks: RunRanks, raw_recipe: MakeRecipe, tmp_path: Path, architecture: str
) -> None:
    recipe = raw_recipe(architecture, dtype="bf16")
    [(code, out, err)] = run_ranks(tmp_path, [recipe], [ALONE])
    assert (code, err) == (0, "")
    losses = losses_of(out)
    assert mean(losses[-5:]) < mean(losses[:5]) - 2


def names_of(spelling: tuple[str, str, str], port: str, world: int) -> list[dict[str, str]]:
    """The environments of all ranks of a node, by torchrun's or srun's names."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        dict(zip(spelling, (str(rank), str(world), str(rank)), strict=True)) | meeting
        for rank in range(world)
    ]


TORCHRUN_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
SRUN_NAMES = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")


@pytest.mark.slow
@pytest.mark.parametrize("spelling", [TORCHRUN_NAMES, SRUN_NAMES], ids=["torchrun", "srun"])
def test_two_ranks_train_as_one(
    run_ranks: RunRanks,
    raw_recipe: MakeRecipe,
    tmp_path: Path,
    unused_port: Callable[[], str],
    llama_alone: str,
    spelling: tuple[str, str, str],
) -> None:
    recipe = raw_recipe(global_batch=8, max_steps=4)
    first, second = run_ranks(tmp_path, [recipe] * 2, names_of(spelling, unused_port(), 2))
    assert (first[0], first[2]) == (0, "")
    assert second == (0, "", "")
    assert losses_of(first[1]) == pytest.approx(losses_of(llama_alone)[:4], rel=2e-3)
    assert steps_of(first[1])[-1]["consumed"] == "32"


@pytest.mark.slow
def test_torchrun_starts_it(
    torch_python: str, torch_environment: Mapping[str, str], raw_recipe: MakeRecipe, tmp_path: Path
) -> None:
    """In Pythons that import torch and transformers after the program has silenced their
    notices.
    """
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(raw_recipe("nemotronh", max_steps=2)), encoding="utf-8")
    start = [torch_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    argv = [*start, "-m", "llmb_workloads.torch_pretrain", str(file)]
    ended = subprocess.run(
        argv, env=torch_environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert ended.returncode == 0, ended.stderr
    assert len(steps_of(ended.stdout)) == 2
    assert "transformers" not in ended.stderr


@pytest.mark.slow
def test_a_failing_rank_ends_the_run_with_its_traceback(
    run_ranks: RunRanks, raw_recipe: MakeRecipe, tmp_path: Path, unused_port: Callable[[], str]
) -> None:
    blocked = tmp_path / "a file"
    blocked.touch()
    steps = {"start_step": 0, "stop_step": 1}
    recipes = [
        raw_recipe(profile=steps | {"dir": str(folder)})
        for folder in (tmp_path / "traces", blocked)
    ]
    first, second = run_ranks(tmp_path, recipes, names_of(TORCHRUN_NAMES, unused_port(), 2))
    assert second[0] == 1
    assert "FileExistsError" in second[2].splitlines()[-1]
    assert first[0] != 0
    assert "Traceback" in first[2]
    assert "reached." not in first[1]


@pytest.fixture(scope="module")
def saved(
    run_ranks: RunRanks,
    raw_recipe: MakeRecipe,
    unused_port: Callable[[], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, list[str]]:
    """The folder of a run of three steps that saves and profiles its second, and its log's
    lines.
    """
    folder = tmp_path_factory.mktemp("run")
    recipe = raw_recipe(
        max_steps=3,
        checkpoint={"save": True, "dir": str(folder / "checkpoints")},
        profile={"start_step": 1, "stop_step": 2, "dir": str(folder / "traces")},
    )
    (code, out, err), second = run_ranks(
        folder, [recipe] * 2, names_of(TORCHRUN_NAMES, unused_port(), 2)
    )
    assert (code, err) == (0, "")
    assert second == (0, "", "")
    return folder, out.splitlines()


@pytest.mark.slow
def test_the_save_is_reported_before_the_end(saved: tuple[Path, list[str]]) -> None:
    assert CHECKPOINT_LINE.fullmatch(saved[1][-2])
    assert saved[1][-1].endswith("reached.")


@pytest.mark.slow
def test_every_rank_writes_its_share_of_one_checkpoint(saved: tuple[Path, list[str]]) -> None:
    [checkpoint] = (saved[0] / "checkpoints").iterdir()
    assert re.fullmatch(
        r"default--reduced_train_loss=\d\.\d{4}-epoch=0-consumed_samples=12", checkpoint.name
    )
    shares = sorted((checkpoint / "weights").glob("*.distcp"))
    assert [share.name[:4] for share in shares] == ["__0_", "__1_"]
    # Each of the 1.3 M weights and its two moments of AdamW, in fp32, once and not once for each
    # rank.
    assert 1 <= sum(share.stat().st_size for share in shares) / (1.31e6 * 3 * 4) < 1.1


@pytest.mark.slow
def test_every_rank_writes_a_trace(saved: tuple[Path, list[str]]) -> None:
    traces = sorted((saved[0] / "traces").iterdir())
    assert [trace.name for trace in traces] == ["rank0.pt.trace.json", "rank1.pt.trace.json"]
    for trace in traces:
        names = {
            event.get("name")
            for event in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
        }
        assert "aten::mm" in names


def test_a_refusal_is_one_line_and_needs_no_torch(
    raw_recipe: MakeRecipe, tmp_path: Path, wording: Callable[..., None]
) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(raw_recipe(dtype="fp8")), encoding="utf-8")
    # This interpreter has no torch: the refusal comes before anybody asks for it.
    argv = [sys.executable, "-m", "llmb_workloads.torch_pretrain", str(file)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    wording("torch_pretrain", ended.stderr)


def test_ranks_that_do_not_divide_the_batch_are_refused(
    raw_recipe: MakeRecipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wording: Callable[..., None],
) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(raw_recipe(global_batch=6)), encoding="utf-8")
    for name, value in names_of(TORCHRUN_NAMES, "29500", 2)[0].items():
        monkeypatch.setenv(name, value)
    assert main([str(file)]) == 2
    wording("torch_pretrain", capsys.readouterr().err)


def test_a_pause_that_is_no_share_of_a_step_is_refused(
    raw_recipe: MakeRecipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wording: Callable[..., None],
) -> None:
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(raw_recipe()), encoding="utf-8")
    monkeypatch.setenv("SLOW_ON_PURPOSE", "a third")
    assert main([str(file)]) == 2
    wording("torch_pretrain", capsys.readouterr().err)


@pytest.mark.slow
def test_a_run_that_is_slow_on_purpose_says_so(
    run_ranks: RunRanks, raw_recipe: MakeRecipe, tmp_path: Path
) -> None:
    recipe = raw_recipe(max_steps=4)
    [(code, out, err)] = run_ranks(tmp_path, [recipe], [{**ALONE, "SLOW_ON_PURPOSE": "0.33"}])
    assert (code, err, len(steps_of(out))) == (0, "", 4)
    assert "torch_pretrain: slow on purpose: a pause of 33 % after each step" in out.splitlines()


def test_without_a_recipe_the_usage_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "torch_pretrain RECIPE.json" in capsys.readouterr().err
