# SPDX-License-Identifier: Apache-2.0
"""Tests of reading sacct, squeue and sinfo, from what the real commands have printed."""

import pytest

from llmb.builtin.slurm import commands
from llmb.builtin.slurm.commands import JobRow, read_accounting, read_queue
from llmb.builtin.slurm.partitions import read
from llmb.contract.sbatch import seconds
from llmb.contract.state import ACTIVE, ENDS, KNOWN, LOST, WAITING, JobState

# Slurm's documentation of squeue and sacct, releases 20.11 to 24.11.
DOCUMENTED = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "COMPLETING",
    "CONFIGURING",
    "DEADLINE",
    "EXPEDITING",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PENDING",
    "POWER_UP_NODE",
    "PREEMPTED",
    "RECONFIG_FAIL",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "RESIZING",
    "RESV_DEL_HOLD",
    "REVOKED",
    "RUNNING",
    "SIGNALING",
    "SPECIAL_EXIT",
    "STAGE_OUT",
    "STOPPED",
    "SUSPENDED",
    "TIMEOUT",
    "UPDATE_DB",
]


def test_every_documented_state_is_known_and_of_one_kind() -> None:
    assert {*DOCUMENTED} | {LOST} == KNOWN
    assert len(ENDS) + len(WAITING) + len(ACTIVE) == len(KNOWN)


@pytest.mark.parametrize("state", DOCUMENTED)
def test_a_state_is_read_whole_and_cut_short(state: str) -> None:
    assert commands.state_word(state) == state
    (row,) = read_accounting(f"7|{state}|0:0|Unknown|Unknown|None||x.a1")
    assert row.state.is_end == (state in ENDS)
    if len(state) > 10:  # sacct's columns of old
        assert commands.state_word(state[:9] + "+") == state


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("CANCELLED by 1000", "CANCELLED"),
        ("CANCELLED+", "CANCELLED"),
        ("OUT_OF_ME+", "OUT_OF_MEMORY"),
        ("NODE_FAIL,REQUEUED", "NODE_FAIL"),
        ("completed", "COMPLETED"),
        ("RE+", "RE+"),
        ("NEW_STATE", "NEW_STATE"),
    ],
)
def test_words_as_slurm_writes_them(text: str, word: str) -> None:
    assert commands.state_word(text) == word


def test_a_state_that_is_not_known_is_no_end() -> None:
    for text in ("NEW_STATE", "RE+", ""):
        (row,) = read_accounting(f"7|{text}|0:0|Unknown|Unknown|None||x.a1")
        assert not row.state.is_end


ACCOUNTING = """\
12|COMPLETED|0:0|1795252559|1795252562|None|n[1-4],m7|pretrain_x.abc
13|CANCELLED by 0|0:15|1795252559|1795252562|None|n3|pretrain_x.abd
14|PENDING|0:0|Unknown|Unknown|None|None assigned|pretrain_x.abe
15|RUNNING|0:0|1795252559|Unknown|None|n2|pretrain_x.abf
16|COMPLETED||None|Unknown|||allocation
sacct: a line of something else
"""


def test_what_accounting_says() -> None:
    rows = {row.job_id: row for row in read_accounting(ACCOUNTING)}
    assert rows["12"].state == JobState(
        state="COMPLETED", exit_code=0, started=1795252559, ended=1795252562, nodes="n[1-4],m7"
    )
    assert rows["13"].state == JobState(
        state="CANCELLED",
        reason="cancelled by root",
        exit_code=143,
        started=1795252559,
        ended=1795252562,
        nodes="n3",
    )
    assert rows["14"].state == JobState(state="PENDING")
    assert rows["15"].state == JobState(state="RUNNING", started=1795252559, nodes="n2")
    assert rows["16"].name == "allocation"
    assert len(rows) == 5


@pytest.mark.parametrize(
    ("row", "state", "code", "reason"),
    [
        ("OUT_OF_MEMORY|0:125|1795252559|1795252562|None", "OUT_OF_MEMORY", None, ""),
        ("OUT_OF_ME+|0:125|1795252559|1795252562|None", "OUT_OF_MEMORY", None, ""),
        ("NODE_FAIL|1:0|1795252559|1795252562|None", "NODE_FAIL", 1, ""),
        ("TIMEOUT|0:15|1795252559|1795252562|TimeLimit", "TIMEOUT", 143, "TimeLimit"),
        ("PREEMPTED|0:15|1795252559|1795252562|None", "PREEMPTED", 143, ""),
        ("DEADLINE|0:0|Unknown|1795252562|DeadLine", "DEADLINE", 0, "DeadLine"),
        ("BOOT_FAIL|0:0|Unknown|1795252562|None", "BOOT_FAIL", 0, ""),
        ("REVOKED|0:0|Unknown|1795252562|None", "REVOKED", 0, ""),
    ],
)
def test_ends_that_no_test_cluster_makes(
    row: str, state: str, code: int | None, reason: str
) -> None:
    ((_, seen),) = [
        (one.job_id, one.state) for one in read_accounting(f"17|{row}||pretrain_x.abg\n")
    ]
    assert (seen.state, seen.is_end, seen.exit_code, seen.reason) == (state, True, code, reason)
    assert seen.ended == 1795252562


def test_what_the_queue_says() -> None:
    text = "21|PENDING|Resources|1795259999|1795260000||a.b\n"
    text += "22|FAILED|NonZeroExitCode|1795252559|1795252562|n[01-02]|c.d\n"
    assert list(read_queue(text)) == [
        JobRow(job_id="21", name="a.b", state=JobState(state="PENDING", reason="Resources")),
        JobRow(
            job_id="22",
            name="c.d",
            state=JobState(state="FAILED", started=1795252559, ended=1795252562, nodes="n[01-02]"),
        ),
    ]


def test_a_job_that_never_had_nodes_has_no_start() -> None:
    """Without accounting, the queue has the time of its end as its start too."""
    (row,) = read_queue("23|CANCELLED|None|1795252562|1795252562||e.f\n")
    assert row.state == JobState(state="CANCELLED", ended=1795252562)
    (row,) = read_queue("23|CANCELLED|None|1795252562|1795252562|n1|e.f\n")
    assert (row.state.started, row.state.ended) == (1795252562, 1795252562)


@pytest.mark.parametrize(
    ("state", "reported", "reason"),
    [
        ("COMPLETED", "ReqNodeNotAvail", ""),
        ("FAILED", "Resources", ""),
        ("CANCELLED", "Priority", ""),
        ("TIMEOUT", "AssocGrpGRES", ""),
        ("CANCELLED", "DependencyNeverSatisfied", "DependencyNeverSatisfied"),
        ("NODE_FAIL", "NodeDown", "NodeDown"),
        ("PENDING", "ReqNodeNotAvail", "ReqNodeNotAvail"),
        ("RUNNING", "BeginTime", ""),
    ],
)
def test_why_a_job_waited_is_reported_while_it_waits(
    state: str, reported: str, reason: str
) -> None:
    """Accounting keeps it beyond that."""
    assert commands.reason_of(state, reported) == reason


@pytest.mark.parametrize(
    ("limit", "length"),
    [
        ("infinite", None),
        ("n/a", None),
        ("30:00", 1800),
        ("2:00:00", 7200),
        ("1-12:00:00", 129600),
        # What a user may write: sbatch(1).
        ("20", 1200),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("UNLIMITED", None),
        ("soon", None),
        ("", None),
    ],
)
def test_time_limits(limit: str, length: int | None) -> None:
    assert seconds(limit) == length


PARTITIONS = """\
gpu*|up|infinite|1-infinite|3|drained|gpu:h100:8(S:0-1)|n3|broken | fan
gpu*|up|infinite|1-infinite|5|mixed|gpu:h100:8(S:0-1)|n[1-2,4-6]|none
gpu*|up|infinite|1-infinite|1|idle*|gpu:h100:8|n9|Not responding
gpu*|up|infinite|1-infinite|2|idle~|gpu:h100:8|c[1-2]|none
mixed|up|1-00:00:00|1-16|4|allocated|gpu:a100:4,gpu:h100:2,nvme:1|m[1-4]|none
cpu|inact|30:00|1-infinite|2|idle|(null)|p[1-2]|none
cpu|inact|30:00|1-infinite|3|unknown|(null)|p[3-5]|none
"""


def test_partitions_nodes_and_gpus() -> None:
    found = read(PARTITIONS)
    assert [
        (one.name, one.is_default, one.available, one.time_limit, one.max_nodes)
        for one in found.values()
    ] == [
        ("gpu", True, "up", None, None),
        ("mixed", False, "up", 86400, 16),
        ("cpu", False, "inact", 1800, None),
    ]
    assert [(nodes.count, nodes.in_service) for nodes in found["gpu"].nodes] == [
        (3, False),
        (5, True),
        (1, False),
        (2, True),
    ]
    # the controller has just started
    assert [nodes.in_service for nodes in found["cpu"].nodes] == [True, True]
    (nodes,) = found["mixed"].nodes
    assert (nodes.gpus_of(None), nodes.gpus_of("a100"), nodes.gpus_of("b200")) == (6, 4, 0)
    assert found["gpu"].nodes[0].reason == "broken | fan"
    assert found["cpu"].nodes[0].gpus == {}
