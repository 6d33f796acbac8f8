# SPDX-License-Identifier: Apache-2.0
"""Tests of the simple job list: valid forms, and faults with file and line."""

import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from llmb.contract.entry import JobEntry, JobList
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import Workload
from llmb.errors import Fault, LlmbError, UsageError
from llmb.plan.joblist import read_job_list
from llmb.plan.plan import Plan, make_plan
from llmb_exemplar import llmb_job_list
from llmb_exemplar.job_list import parse
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

NAME = "jobs.txt"


def read(text: str) -> JobList:
    return parse(textwrap.dedent(text).lstrip("\n"), name=NAME)


def requests_of(text: str) -> tuple[JobEntry, ...]:
    listed = read(text)
    assert listed.faults == ()
    return listed.entries


EXAMPLE = "('bf16', [128, 256], 3)"


def faults_of(text: str) -> list[tuple[str, str]]:
    return [(fault.place, fault.code) for fault in read(text).faults]


def text_of(faults: Iterable[Fault]) -> str:
    return "".join(f"{fault}\nhint: {fault.hint}\n" for fault in faults)


def test_the_documented_example() -> None:
    first, second = requests_of(
        """
        pretrain_nemotron4_340b:
        ('bf16', [128, 256, 512], 3)
        (['fp8', 'bf16'], [128], 1, True)
        """
    )
    assert first == job_entry(
        workload="pretrain_nemotron4_340b",
        dtypes=("bf16",),
        scales=(128, 256, 512),
        repeats=3,
        place="jobs.txt:2",
        header="jobs.txt:1",
    )
    assert second == job_entry(
        workload="pretrain_nemotron4_340b",
        dtypes=("fp8", "bf16"),
        scales=(128,),
        repeats=1,
        profile=True,
        place="jobs.txt:3",
        header="jobs.txt:1",
    )


@pytest.mark.parametrize(
    "header",
    [
        "pretrain_nemotron-h_56b:",
        "pretrain_nemotronh_56b:",
        "pretraining_nemotronh_56b:",
        "nemotron_h_56b:",
        "NemotronH-56B:",
        "nemotron.h_56b :",
        "pretrain_nemotronh_56b : # Blackwell comes later",
        "  pretrain_nemotronh_56b:  ",
    ],
)
def test_a_header_in_every_spelling(header: str, workloads: dict[str, Workload]) -> None:
    (request,) = requests_of(f"{header}\n('fp8', 32, 1)")
    plan = plan_of(f"{header}\n('fp8', 32, 1)", workloads)
    assert request.scales == (32,)
    assert [(job.workload, job.model_size) for job in plan.jobs] == [("pretrain_nemotronh", "56b")]


def test_two_sections_without_a_blank_line_both_run() -> None:
    found = requests_of("nemotron4_15b:\n('fp8', [16], 1)\nllama3.1_8b:\n('bf16', [8], 2)\n")
    assert [(request.settings.workload, request.scales) for request in found] == [
        ("nemotron4_15b", (16,)),
        ("llama3.1_8b", (8,)),
    ]


def test_the_same_header_twice_both_run() -> None:
    found = requests_of("nemotron4_15b:\n('fp8', [16], 1)\n\nnemotron4_15b:\n('bf16', [32], 1)\n")
    assert [request.dtypes + request.scales for request in found] == [("fp8", 16), ("bf16", 32)]


@pytest.mark.parametrize(
    "task",
    [
        "('bf16', 128, 1)",
        "('bf16', [128], 1)",
        "('bf16', (128,), 1)",
        "(['bf16'], [128], 1, False)",
        '("bf16", [128], 1)  # the first run',
        "\t('bf16',[128],1,)  ",
    ],
)
def test_a_task_in_every_form(task: str) -> None:
    (request,) = requests_of(f"nemotron4_15b:\n{task}\n")
    assert (request.dtypes, request.scales, request.repeats, request.settings.profile) == (
        ("bf16",),
        (128,),
        1,
        False,
    )


def test_comments_blank_lines_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes("\ufeffnemotron4_15b:\r\n\r\n  # why\r\n('fp8', [16], 1)\r\n".encode())
    listed = read_job_list(path, llmb_job_list)
    assert listed.faults == ()
    assert [(item.settings.workload, item.place) for item in listed.entries] == [
        ("nemotron4_15b", f"{path}:4")
    ]


@pytest.mark.parametrize(
    "line",
    [
        "submit everything",
        "'fp8', [16], 1",
        "[('fp8', [16], 1)]",
        "nemotron4 15b:",
        "('fp8', [16], 1",
        "('fp8', [0128], 1)",
        "('fp8', [16], n)",
        "({[]}, [16], 1)",
        "(__import__('os').getcwd(), [16], 1)",
        "(bf16, [16], 1)",
        "(['fp8', bf16], [16], 1)",
        "('fp8')",
        "('fp8', [16])",
        "('fp8', [16], 1, True, 5)",
        "(8, [16], 1)",
        "([], [16], 1)",
        "('fp8', [], 1)",
        "('fp8', '16', 1)",
        "('fp8', [16, 32.0], 1)",
        "('fp8', True, 1)",
        "('fp8', [16, 0], 1)",
        "('fp8', -16, 1)",
        "('fp8', [16], 0)",
        "('fp8', [16], -2)",
        "('fp8', [16], '3')",
        "('fp8', [16], True)",
        "('fp8', [16], 1, 'yes')",
        "('fp8', [16], 1, 1)",
    ],
)
def test_an_invalid_line_is_a_fault_of_its_line(line: str, wording: Callable[..., None]) -> None:
    listed = read(f"nemotron4_15b:\n('fp8', [16], 1)\n{line}\n('bf16', [16], 1)\n")
    (fault,) = listed.faults
    assert (fault.place, fault.code) == ("jobs.txt:3", "task-invalid")
    assert fault.hint is not None
    assert EXAMPLE in fault.hint
    assert [request.place for request in listed.entries if not request.faulty] == [
        "jobs.txt:2",
        "jobs.txt:4",
    ]
    wording("submit-all", fault.message)


def test_every_fault_of_a_line_is_reported(wording: Callable[..., None]) -> None:
    faults = read("nemotron4_15b:\n('fp8', [16.5], 0, None)\n").faults
    assert [(fault.place, fault.code) for fault in faults] == [("jobs.txt:2", "task-invalid")] * 3
    wording("submit-all", text_of(faults))


def test_a_task_before_any_header() -> None:
    text = "('fp8', [16], 1)\nnemotron4_15b:\n('fp8', [16], 1)\n"
    assert faults_of(text) == [("jobs.txt:1", "header-missing")]


def test_a_header_without_tasks() -> None:
    text = "nemotron4_15b:\nnemotron4_340b:\n('fp8', [256], 1)\nllama3.1_8b:\n# later\n"
    assert faults_of(text) == [("jobs.txt:1", "tasks-empty"), ("jobs.txt:4", "tasks-empty")]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing yet\n"])
def test_a_list_without_jobs_is_an_error(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(text)
    assert raised.value.code == "joblist-empty"
    assert NAME in raised.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        read_job_list(tmp_path / NAME, llmb_job_list)
    assert str(tmp_path / NAME) in raised.value.message


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"nemotron4_15b:\n('bf16', 16, 1) # \xff\n")
    with pytest.raises(UsageError) as raised:
        read_job_list(path, llmb_job_list)
    assert "UTF-8" in raised.value.message
    assert "line 2" in raised.value.message


def plan_of(text: str, workloads: dict[str, Workload], gpu_type: str = "h100") -> Plan:
    listed = read(text)
    assert listed.faults == ()
    return make_plan(
        listed.entries,
        workloads,
        ClusterConfig(cluster_type="slurm", gpu_type=gpu_type, kind=all_types()["slurm"]),
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "pretrain_nemotorn4_15b:\n('fp8', [16], 1)",
            (
                "jobs.txt:1",
                "workload-unknown",
                "pretrain_nemotorn4_15b",
                "did you mean 'pretrain_nemotron4_15b'?",
            ),
        ),
        (
            "# one\npretrain_nemotron4_341b:\n('fp8', [256], 1)\n('bf16', [256], 1)",
            ("jobs.txt:2", "size-unknown", "341b", "did you mean '340b'?"),
        ),
        (
            "pretrain_nemotron4:\n('fp8', [16], 1)",
            ("jobs.txt:1", "size-missing", None, "pretrain_nemotron4_340b"),
        ),
        (
            "pretrain_nemotron4_15b:\n('fp9', [16, 32, 64], 2)",
            ("jobs.txt:2", "dtype-unknown", "fp9", "did you mean 'fp8'?"),
        ),
        (
            "pretrain_nemotron4_15b:\n(['fp8', 'bf16'], [16, 24], 1)",
            ("jobs.txt:2", "scale-untested", 24, "16, 32, 64"),
        ),
        (
            "pretrain_nemotron4_15b:\n('fp8', [8], 1)",
            ("jobs.txt:2", "scale-untested", 8, "16, 32, 64"),
        ),
    ],
)
def test_an_unknown_name_is_one_fault_with_the_nearest_word(
    text: str, fault: tuple[str, str, object, str], workloads: dict[str, Workload]
) -> None:
    (found,) = plan_of(text, workloads).faults
    assert (found.place, found.code, found.value) == fault[:3]
    assert found.hint is not None
    assert fault[3] in found.hint


def test_a_faulty_line_is_checked_further_and_never_becomes_a_job(
    workloads: dict[str, Workload],
) -> None:
    listed = read("nemotron4_15b:\n('fp9', [16], 0)\n('fp8', [16], 0)\n")
    plan = make_plan(
        listed.entries,
        workloads,
        ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"]),
    )
    assert [fault.place for fault in listed.faults] == ["jobs.txt:2", "jobs.txt:3"]
    assert [(fault.code, fault.value) for fault in plan.faults] == [("dtype-unknown", "fp9")]
    assert plan.jobs == ()


def test_each_task_is_dtype_by_scale_by_repeats(workloads: dict[str, Workload]) -> None:
    jobs = plan_of("nemotron4_15b:\n(['fp8', 'bf16'], [16, 32], 3, True)", workloads).jobs
    assert [(job.dtype, job.scale, job.repeat) for job in jobs] == [
        (dtype, scale, repeat)
        for dtype in ("fp8", "bf16")
        for scale in (16, 32)
        for repeat in (1, 2, 3)
    ]
    assert all(job.profile for job in jobs)


LINES = st.one_of(
    st.text(max_size=30),
    st.builds("{}:{}".format, st.text(max_size=10), st.text(max_size=5)),
    st.builds("({}, {}, {})".format, st.text(max_size=8), st.text(max_size=8), st.text(max_size=8)),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.binary(max_size=5),
        lambda parts: (
            st.lists(parts, max_size=4)
            | st.tuples(parts, parts, parts)
            | st.sets(st.integers(), max_size=2)
        ),
        max_leaves=8,
    ).map(repr),
)


@given(st.lists(LINES, max_size=6).map("\n".join))
@example("a:\n" + "(" * 5000)
@example("a:\n(" + "-" * 100000 + "1, 2, 3)")
@example(f"a:\n('fp8', [{'9' * 5000}], 1)")
@example("a:\n('\\d', [1], 1)")
@example("a:\n('fp8'\x00, [1], 1)")
@example("a:\n({{}}, [1], 1)")
def test_no_text_makes_the_reader_raise_anything_else(text: str) -> None:
    try:
        listed = parse(text, name=NAME)
    except LlmbError:
        return
    assert all(fault.place.startswith(f"{NAME}:") for fault in listed.faults)
    assert all(request.place.startswith(f"{NAME}:") for request in listed.entries)
    assert all(
        request.repeats > 0 and all(scale > 0 for scale in request.scales)
        for request in listed.entries
    )


@given(st.lists(LINES, max_size=6).map("\n".join))
def test_no_line_vanishes(text: str) -> None:
    """Each line is blank, a comment, a header, or is a request or a fault."""
    try:
        listed = parse(text, name=NAME)
    except LlmbError:
        return
    reported = {place for request in listed.entries for place in (request.place, request.header)}
    reported |= {fault.place for fault in listed.faults}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.strip().startswith("#"):
            assert f"{NAME}:{number}" in reported, line


def test_equal_lines_are_entries_of_their_own_places() -> None:
    line = "('fp8', [16], 2)\n"
    entries = parse(f"a_1b:\n{line}{line}b_2b:\n{line}", name="jobs.txt").entries
    assert [entry.place for entry in entries] == ["jobs.txt:2", "jobs.txt:3", "jobs.txt:5"]
    assert [entry.settings.workload for entry in entries] == ["a_1b", "a_1b", "b_2b"]
    assert {entry.header for entry in entries[:2]} == {"jobs.txt:1"}
    assert {(entry.dtypes, entry.scales, entry.repeats) for entry in entries} == {
        (("fp8",), (16,), 2)
    }


def test_each_of_equal_wrong_lines_is_a_fault() -> None:
    faults = parse("a_1b:\n('fp8', 0)\n('fp8', 0)\n", name="jobs.txt").faults
    assert {fault.place for fault in faults} == {"jobs.txt:2", "jobs.txt:3"}
