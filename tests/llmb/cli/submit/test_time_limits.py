# SPDX-License-Identifier: Apache-2.0
"""Tests of which time limit a job has, where several places say one, and that the place that counts
is noted.
"""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]

OPTION, ARG = ("--time-limit", "00:30:00"), ("--slurm-arg", "time=01:00:00")
LIST = (
    "pretrain_nemotron4_15b:\n  dtypes: fp8\n  scales: [16]\n  repeats: 1\n  time_limit: 00:11:00\n"
)


def limits(
    llmb: Command, install: Path, *arguments: str, listed: str = LIST
) -> tuple[str, str | None, list[str]]:
    """The limit as the job has it and as its script asks for it, and the notes about it."""
    (install / "jobs.yaml").write_text(listed)
    done = llmb(
        "submit-all",
        install / "jobs.yaml",
        "--dry-run",
        "--format",
        "json",
        *arguments,
        "--install",
        install,
    )
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    asked = re.search(r"^#SBATCH --time=(\S+)$", job["script"], re.MULTILINE)
    return (
        job["time_limit"],
        asked and asked[1],
        re.findall(r"^note: (.* overrides .*)$", done.stderr, re.MULTILINE),
    )


@pytest.mark.parametrize(
    ("own", "listed", "arguments", "limit", "is_noted"),
    [
        (None, False, (), "00:20:00", False),
        ("04:00:00", False, (), "04:00:00", False),
        ("04:00:00", True, (), "00:11:00", True),
        (None, True, OPTION, "00:30:00", True),
        ("04:00:00", False, OPTION, "00:30:00", True),
        (None, False, (*OPTION, *ARG), "01:00:00", True),
        ("04:00:00", True, ARG, "01:00:00", True),
        (None, False, ("--slurm-arg", "--time=90"), "01:30:00", False),
    ],
    ids=[
        "seed",
        "config",
        "list config",
        "option list",
        "option config",
        "argument option",
        "argument all",
        "minutes",
    ],
)
def test_the_nearest_limit_applies_and_is_reported(
    own: str | None,
    listed: bool,
    arguments: tuple[str, ...],
    limit: str,
    is_noted: bool,
    llmb_here: Command,
    cluster: Cluster,
    wording: Callable[..., None],
) -> None:
    install = cluster(slurm={"args": {"time": own} if own else {}})
    text = LIST if listed else LIST.replace("  time_limit: 00:11:00\n", "")
    shown, asked, notes = limits(llmb_here, install, *arguments, listed=text)
    assert shown == limit
    assert asked == ("90" if "--time=90" in arguments else limit)
    assert len(notes) == is_noted
    if is_noted:
        wording("submit-all", notes[0])


def test_a_limit_word_of_slurm_is_passed_to_slurm(
    llmb_here: Command, cluster: Cluster, wording: Callable[..., None]
) -> None:
    install = cluster(slurm={"args": {"time": "04:00:00"}})
    shown, asked, (note,) = limits(llmb_here, install, "--slurm-arg", "time=null", *OPTION)
    assert (shown, asked) == ("00:30:00", None)
    wording("submit-all", note)
    assert limits(llmb_here, install, "--slurm-arg", "time=UNLIMITED")[1] == "UNLIMITED"


def test_other_cluster_types_ignore_it(llmb_here: Command, cluster: Cluster) -> None:
    install = cluster("local", "cpu", slurm={"args": {"time": "04:00:00"}})
    listed = "pretrain_nemotron4_tiny:\n  dtypes: bf16\n  scales: [1]\n"
    assert limits(llmb_here, install, listed=listed)[0] != "04:00:00"
