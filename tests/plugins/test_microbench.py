# SPDX-License-Identifier: Apache-2.0
"""Tests of the microbenchmarks without torch: formulas by hand, arguments, the file of storage,
launches, the table.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from llmb import api
from llmb.contract.job import Job
from llmb.contract.spec import Workload
from llmb.contract.window import default_window
from llmb.measure.log_reader import read_log
from llmb.measure.reader import reader_of
from llmb.plan.plan import make_plan
from llmb.plan.published_tables import read_published
from llmb_installer.cluster_types import all_types
from llmb_microbench import llmb_launch, llmb_setup, llmb_workload
from llmb_microbench.program import formulas, settings, storage, timing
from llmb_testing.entries import job_entry

CLUSTERS = ("local", "slurm", "runai")


@pytest.fixture(scope="module")
def microbench() -> Workload:
    return llmb_workload()


def site(cluster_type: str = "slurm", **changes: Any) -> api.Site:
    traits = all_types()[cluster_type].traits_of(None)
    given = {
        "traits": traits,
        "gpu_type": "h100",
        "gpus_per_node": 8,
        "install": Path("/i"),
        **changes,
    }
    return api.Site(cluster_type=cluster_type, **given)


def job_of(workload: Workload, size: str, scale: int = 8, **parameters: str) -> Job:
    from llmb.contract.schema import ClusterConfig

    given = {name: (value,) for name, value in parameters.items()}
    request = job_entry(workload=workload.key, size=size, scales=(scale,), parameters=given)
    plan = make_plan(
        [request],
        {workload.key: workload},
        ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"]),
    )
    assert plan.faults == ()
    return plan.jobs[0]


@pytest.mark.parametrize(
    ("case", "ranks", "busbw"),
    [  # 1 GB in 10 ms are 100 GB/s; factors of nccl-tests' PERFORMANCE.md
        ("all_reduce", 2, 100.0),
        ("all_reduce", 8, 175.0),
        ("all_gather", 8, 87.5),
        ("reduce_scatter", 4, 75.0),
        ("all_to_all", 2, 50.0),
        ("send_recv", 2, 100.0),
    ],
)
def test_bandwidths_by_hand(case: str, ranks: int, busbw: float) -> None:
    found = formulas.of_collective(case, 10**9, ranks, 0.01)
    assert found == pytest.approx({"busbw": busbw, "algbw": 100.0, "latency": 10_000.0})


def test_the_bandwidths_of_eight_h100_that_nvidia_names() -> None:
    """Issue 212 of nccl-tests: algorithm bandwidth of about 275 GB/s, bus bandwidth of about
    480.
    """
    seconds = 8 * 1024**3 / 275e9
    assert formulas.of_collective("all_reduce", 8 * 1024**3, 8, seconds)["busbw"] == pytest.approx(
        480, rel=0.01
    )


def test_other_formulas_by_hand() -> None:
    assert formulas.of_gemm(1000, 0.002) == {"tflops": pytest.approx(1.0)}  # 2e9 operations in 2 ms
    # read once and written once
    assert formulas.of_memory(10**9, 0.5) == {"copy_bw": pytest.approx(4.0)}
    assert formulas.of_launch(3e-6) == {"launch_latency": pytest.approx(3.0)}


@pytest.mark.parametrize(
    ("text", "size"), [("16M", 16_777_216), ("1K", 1024), ("8G", 8 * 2**30), ("4096", 4096)]
)
def test_sizes(text: str, size: int) -> None:
    assert settings.read_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "0", "-1M", "1.5M", "16MB", "1T", "٣"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(settings.MicrobenchError):
        settings.read_size(text)


@pytest.mark.parametrize(
    "words", [["case"], ["--case"], ["--case=gemm", "--dtype=fp32"], ["--case=", "--dtype=a"]]
)
def test_arguments_that_are_refused(words: list[str]) -> None:
    with pytest.raises(settings.MicrobenchError):
        settings.read_settings(words)


def test_the_place_comes_from_torchruns_variables() -> None:
    assert settings.read_process({}) == settings.RankProcess()
    own = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert settings.read_process(own) == settings.RankProcess(
        rank=5, world=8, local_rank=1, local_world=4
    )
    with pytest.raises(settings.MicrobenchError):
        settings.read_process({"RANK": "5", "LOCAL_RANK": "1"})


def test_short_operations_are_repeated_within_an_iteration() -> None:
    assert [timing.count_for(seconds) for seconds in (1.0, 0.01, 0.004, 1e-6, 0.0)] == [
        1,
        1,
        3,
        1000,
        1000,
    ]


def test_an_iteration_is_divided_and_the_slowest_rank_is_what_counts() -> None:
    now = iter([10.0, 10.6])  # 0.6 s for 3 operations
    done: list[int] = []
    ranks: Any = SimpleNamespace(
        barrier=lambda: None, clock=lambda: next(now), max=lambda values: [values[0] + 1.0]
    )
    assert timing.timed(ranks, lambda: done.append(1), 3) == pytest.approx(1.2)
    assert len(done) == 3


def test_llmb_reads_its_lines(microbench: Workload, tmp_path: Path) -> None:
    values = [
        {"busbw": 480.25, "algbw": 274.0, "latency": 35.125},
        {"busbw": 1e-07, "algbw": 0.5, "latency": 1e9},
    ]
    path = tmp_path / "log.out"
    path.write_text(
        "microbench: a first line\n"
        + "".join(timing.line(i, 2, one) + "\n" for i, one in enumerate(values))
    )
    samples = read_log(path, reader_of(microbench, "all_reduce", None).spec)
    assert [dict(step.values) for step in samples.steps] == values


@pytest.mark.parametrize("size", [4096, 8 * 1024**2])
def test_a_file_of_storage_is_written_read_and_gone(size: int, tmp_path: Path) -> None:
    file = storage.File(tmp_path, "file", size)
    # from the beginning, so that a killed rank leaves nothing
    assert list(tmp_path.iterdir()) == []
    file.write()
    file.read()
    assert file.is_right()
    os.pwrite(os.open(f"/proc/self/fd/{file.handle}", os.O_WRONLY), b"\0" * 4096, size - 4096)
    file.read()
    assert not file.is_right()


def test_a_file_system_without_o_direct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    file = storage.File(tmp_path, "file", 8192)
    file.write()
    file.read()
    assert (file.is_direct, file.is_right(), list(tmp_path.iterdir())) == (False, True, [])


def test_a_case_has_only_its_own_parameters_and_metrics(microbench: Workload) -> None:
    names = {
        size: job_of(microbench, size).experiment_name
        for size in ("all_reduce", "gemm", "launch", "storage")
    }
    assert names == {
        "all_reduce": "microbench_all_reduce_fp32_gpus8_message_size16M",
        "gemm": "microbench_gemm_fp32_gpus8_matrix_size4096",
        "launch": "microbench_launch_fp32_gpus8",
        "storage": "microbench_storage_fp32_gpus8_file_size256M",
    }
    assert {size: microbench.headline(size).name for size in microbench.sizes} == {
        **dict.fromkeys(formulas.BUS_FACTORS, "busbw"),
        "gemm": "tflops",
        "memory": "copy_bw",
        "host_to_device": "to_device",
        "launch": "launch_latency",
        "storage": "write_bw",
    }
    assert {spec.name for spec in microbench.metrics if spec.better == "lower"} == {
        "latency",
        "launch_latency",
    }


@pytest.mark.parametrize("cluster_type", CLUSTERS)
def test_every_case_has_a_launch_on_every_cluster(cluster_type: str, microbench: Workload) -> None:
    for size in microbench.sizes:
        launch = llmb_launch(
            microbench, job_of(microbench, size), site(cluster_type, venv=Path("/v"))
        )
        given = dict(word.removeprefix("--").split("=", 1) for word in launch.args)
        read = settings.read_settings(launch.args)
        assert (read.case, read.dtype, read.steps) == (size, "fp32", 20)
        assert (
            set(read.sizes)
            == set(given) - {"case", "dtype", "steps"}
            == set(microbench.parameters_of(size))
        )
        assert launch.venv == "/v"


@pytest.mark.parametrize(
    ("size", "scale", "message", "larger"),
    [  # fp32: 4 bytes for each rank
        ("all_gather", 512, "1K", "2K"),
        ("all_to_all", 1024, "2K", "4K"),
        ("all_gather", 256, "1K", None),
        ("all_reduce", 1024, "1K", None),
        ("send_recv", 1024, "1K", None),
    ],
)
def test_a_message_without_an_element_for_each_rank_is_refused_before_submission(
    size: str, scale: int, message: str, larger: str | None, microbench: Workload
) -> None:
    job = job_of(microbench, size, scale, message_size=message)
    if larger is None:
        assert f"--message_size={message}" in llmb_launch(microbench, job, site()).args
        return
    with pytest.raises(api.UsageError) as caught:
        llmb_launch(microbench, job, site())
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "message-too-small",
        "message_size",
        message,
    )
    assert f"message_size={larger} " in (caught.value.hint or "")


@pytest.mark.parametrize("size", sorted(formulas.BUS_FACTORS))
def test_a_collective_of_one_rank_is_refused_before_submission(
    size: str, microbench: Workload
) -> None:
    """--force lifts the tested scales, not what the program needs."""
    job = job_of(microbench, size, 2)
    with pytest.raises(api.UsageError, match="needs 2 ranks or more") as caught:
        llmb_launch(microbench, replace(job, nodes=1, gpus_per_node=1), site())
    assert caught.value.code == "one-rank"
    assert llmb_launch(microbench, job, site()).nodes == 1


def test_the_staged_files_are_a_package_that_imports_nothing_of_llmb(
    microbench: Workload, tmp_path: Path
) -> None:
    launch = llmb_launch(microbench, job_of(microbench, "gemm"), site())
    names = {PurePosixPath(file.name).name for file in launch.files}
    assert {"__main__.py", "collectives.py", "storage.py"} <= names
    assert launch.program.module == "llmb_microbench.program"
    assert not any(
        "from llmb " in file.text or "import llmb\n" in file.text for file in launch.files
    )


def test_collectives_on_gpus_log_the_fabric_that_their_figure_depends_on(
    microbench: Workload,
) -> None:
    """The variables that NCCL's documentation names for these lines; the user's own come first."""
    asked = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"}

    def environment(size: str, gpu_type: str, **env: str) -> Mapping[str, str]:
        job = replace(job_of(microbench, size), env=env)
        return llmb_launch(microbench, job, site(gpu_type=gpu_type)).environment

    assert environment("all_reduce", "h100") == asked
    assert environment("all_reduce", "h100", NCCL_DEBUG="WARN") == {**asked, "NCCL_DEBUG": "WARN"}
    assert environment("gemm", "h100") == {}
    assert environment("all_reduce", "cpu") == {"CUDA_VISIBLE_DEVICES": ""}


def test_in_containers_the_image_is_used_and_needed(microbench: Workload) -> None:
    job = job_of(microbench, "gemm")
    in_image = llmb_launch(microbench, job, site(container=True, venv=Path("/v")))
    assert (in_image.venv, in_image.image) == (None, microbench.image)
    for one in (site(container=True), site("runai")):
        assert [type(need).__name__ for need in llmb_setup(microbench, one).needs] == ["Image"]


def test_without_containers_the_environment_is_that_of_the_other_workloads(
    microbench: Workload,
) -> None:
    from llmb.builtin.torch import torch_pretrain

    here = site("local", settings={"torch": "2.13.0", "transformers": "5.23.0"})
    assert llmb_setup(microbench, here) == torch_pretrain.needs(here)


def test_discovery_of_a_training_cluster_does_not_find_it(microbench: Workload) -> None:
    assert all(size.discover == () for size in microbench.sizes.values())


def test_what_is_published(microbench: Workload) -> None:
    figures = {(one.model_size, one.scale): one for one in read_published(microbench)}
    assert figures["all_reduce", 8].value == 480
    assert {dict(one.parameters)["message_size"] for one in figures.values()} == {"8G"}
    assert {one.metric.name for one in figures.values()} == {"busbw"}


def test_runs_measure_the_iterations_of_the_published_figures(microbench: Workload) -> None:
    figures = read_published(microbench)
    assert {str(figure.window.of(figure.steps, 0)) for figure in figures} == {
        str(default_window(microbench.max_steps))
    }


def test_storage_warms_up_once_and_other_cases_five_times() -> None:
    ranks: Any = SimpleNamespace(barrier=lambda: None, clock=lambda: 0.0, max=lambda values: values)
    for repeats, turns in ((True, 5), (False, 1)):
        done: list[int] = []
        case = timing.Case(
            operations=(lambda done=done: done.append(1),),  # type: ignore[misc]
            values=lambda _: {},
            check=lambda: True,
            about="",
            repeats=repeats,
        )
        counts = timing.warm_up(ranks, case)
        assert (len(done) - 1) // timing.MOST + 1 == turns
        assert counts == [timing.MOST if repeats else 1]


def test_a_case_runs_on_any_number_of_nodes_and_a_collective_on_two_ranks_or_more(
    microbench: Workload,
) -> None:
    assert job_of(microbench, "all_reduce", 24).scale == 24
    assert job_of(microbench, "gemm", 3).scale == 3
    with pytest.raises(AssertionError, match="no scale 1"):
        job_of(microbench, "all_reduce", 1)
