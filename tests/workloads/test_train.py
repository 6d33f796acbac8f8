# SPDX-License-Identifier: Apache-2.0
"""What a run of two ranks leaves behind: one checkpoint after the last step, a trace of each rank."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # torch may be installed first

CHECKPOINT_LINE = re.compile(
    r"\[NeMo I \d{4}-\d\d-\d\d \d\d:\d\d:\d\d nemo_logging:393\] Global Checkpoint Save : Rank: 0 : Iteration: 3 : "
    r"Start time: \d+\.\d{3}s : Save duration: \d+\.\d{3}s"
)


@pytest.fixture(scope="module")
def run(
    run_ranks: Callable[..., list[tuple[int, str, str]]],
    raw_recipe: Callable[..., dict[str, Any]],
    unused_port: Callable[[], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, list[str]]:
    """The folder of a run of three steps that saves and profiles its second, and its log's lines."""
    folder = tmp_path_factory.mktemp("run")
    recipe = raw_recipe(
        max_steps=3,
        checkpoint={"save": True, "dir": str(folder / "checkpoints")},
        profile={"start_step": 1, "stop_step": 2, "dir": str(folder / "traces")},
    )
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": unused_port()}
    environments = [{"RANK": rank, "LOCAL_RANK": rank} | meeting for rank in ("0", "1")]
    (code, out, err), second = run_ranks(folder, [recipe] * 2, environments)
    assert (code, err) == (0, "")
    assert second == (0, "", "")
    return folder, out.splitlines()


def test_the_save_is_reported_before_the_end(run: tuple[Path, list[str]]) -> None:
    assert CHECKPOINT_LINE.fullmatch(run[1][-2])
    assert run[1][-1].endswith("reached.")


def test_every_rank_writes_its_share_of_one_checkpoint(run: tuple[Path, list[str]]) -> None:
    [checkpoint] = (run[0] / "checkpoints").iterdir()
    assert re.fullmatch(r"default--reduced_train_loss=\d\.\d{4}-epoch=0-consumed_samples=12", checkpoint.name)
    shares = sorted((checkpoint / "weights").glob("*.distcp"))
    assert [share.name[:4] for share in shares] == ["__0_", "__1_"]
    # Each of the 1.3 M weights and its two moments of AdamW, in fp32, once and not once for each rank.
    assert 1 <= sum(share.stat().st_size for share in shares) / (1.31e6 * 3 * 4) < 1.1


def test_every_rank_writes_a_trace(run: tuple[Path, list[str]]) -> None:
    traces = sorted((run[0] / "traces").iterdir())
    assert [trace.name for trace in traces] == ["rank0.pt.trace.json", "rank1.pt.trace.json"]
    for trace in traces:
        names = {event.get("name") for event in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]}
        assert "aten::mm" in names
