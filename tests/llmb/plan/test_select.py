# SPDX-License-Identifier: Apache-2.0
"""Tests of the choice of jobs: what is discovered at which scales, and how filters narrow a
list.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llmb.contract.job import Job
from llmb.contract.schema import ClusterConfig, GpuTypeConfig, WorkloadsConfig
from llmb.contract.spec import Workload
from llmb.errors import UsageError, describe
from llmb.plan.discover import choose_scales, discover
from llmb.plan.plan import make_plan
from llmb.plan.select import Selection, adjust, narrow
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

Wording = Callable[..., None]

Workloads = dict[str, Workload]

H100 = ClusterConfig(cluster_type="slurm", gpu_type="h100", kind=all_types()["slurm"])
CPU = ClusterConfig(cluster_type="local", gpu_type="cpu", kind=all_types()["local"])


def found(
    workloads: Workloads, config: ClusterConfig = H100, gpu_type: str = "h100", /, **filters: Any
) -> list[str]:
    """What is discovered, as ``size dtype scale``."""
    requests, _ = discover(workloads, config, Selection(**filters), gpu_type)
    return [f"{item.settings.model_size} {item.dtypes[0]} {item.scales[0]}" for item in requests]


@pytest.mark.parametrize(
    ("filters", "scales"),
    [
        ({"max_scale": 64}, [16, 32, 64]),
        ({"max_scale": 63}, [16, 32]),
        ({"max_scale": 16}, [16]),
        ({"max_scale": 15}, []),
        ({"max_scale": 96}, [16, 32, 64, 96]),
        ({"max_scale": 127}, [16, 32, 64, 96]),
        ({"max_scale": 128}, [16, 32, 64, 96, 128]),
        ({"max_scale": 700}, [16, 32, 64, 96, 128, 256, 512]),
        ({"min_scale": True}, [16]),
        ({"min_scale": True, "max_scale": 64}, [16]),
        ({"min_scale": True, "max_scale": 8}, []),
        ({"scales": (64, 7)}, [64, 7]),
        ({"scales": (64,), "max_scale": 128}, [64]),
    ],
)
def test_the_scales_that_run(filters: dict[str, Any], scales: list[int]) -> None:
    assert choose_scales([16, 32, 64, 96], Selection(**filters), exact=False) == scales


def test_exact_scales_have_no_powers_above() -> None:
    assert choose_scales([32, 64, 128], Selection(max_scale=1024), exact=True) == [32, 64, 128]
    assert choose_scales([32, 64, 128], Selection(max_scale=64), exact=True) == [32, 64]


@given(tested=st.sets(st.integers(1, 4096), min_size=1).map(sorted), most=st.integers(1, 10000))
def test_scales_ascend_to_the_maximum_and_are_tested_or_powers_of_two(
    tested: list[int], most: int
) -> None:
    scales = choose_scales(tested, Selection(max_scale=most), exact=False)
    assert scales == sorted(set(scales))
    assert all(scale <= most for scale in scales)
    assert all(
        scale in tested or (scale > tested[-1] and scale.bit_count() == 1) for scale in scales
    )


def test_every_installed_size_and_dtype_of_the_gpu_type_largest_first(workloads: Workloads) -> None:
    assert found(workloads, max_scale=64) == [
        "8b fp8 64",
        "8b bf16 64",
        "70b fp8 64",
        "70b bf16 64",
        "405b-proxy fp8 64",
        "405b-proxy bf16 64",
        "15b fp8 64",
        "15b bf16 64",
        "56b fp8 64",
        "8b fp8 32",
        "8b bf16 32",
        "405b-proxy fp8 32",
        "405b-proxy bf16 32",
        "15b fp8 32",
        "15b bf16 32",
        "56b fp8 32",
        "8b fp8 16",
        "8b bf16 16",
        "15b fp8 16",
        "15b bf16 16",
        "8b fp8 8",
        "8b bf16 8",
    ]


def test_what_starts_above_the_maximum_is_reported(workloads: Workloads, wording: Wording) -> None:
    _, skipped = discover(workloads, H100, Selection(max_scale=64), "h100")
    wording("submit-all", "\n".join(skipped))


def test_above_the_largest_scale_but_not_where_scales_are_exact(workloads: Workloads) -> None:
    scales = found(workloads, max_scale=4096, workloads=("llama3.1",), dtypes=("fp8",))
    assert [text for text in scales if text.startswith("70b")] == [
        f"70b fp8 {scale}" for scale in (4096, 2048, 1024, 512, 256, 128, 64)
    ]
    assert [text for text in scales if "proxy" in text] == [
        f"405b-proxy fp8 {scale}" for scale in (128, 64, 32)
    ]


def test_the_smallest_scale_of_each(workloads: Workloads) -> None:
    assert found(workloads, min_scale=True, dtypes=("fp8",)) == [
        "405b fp8 512",
        "340b fp8 128",
        "70b fp8 64",
        "405b-proxy fp8 32",
        "56b fp8 32",
        "15b fp8 16",
        "8b fp8 8",
    ]


def test_the_smallest_scale_up_to_a_maximum(workloads: Workloads) -> None:
    assert found(workloads, min_scale=True, max_scale=16, dtypes=("fp8",)) == [
        "15b fp8 16",
        "8b fp8 8",
    ]


def test_exactly_these_scales(workloads: Workloads) -> None:
    assert found(workloads, scales=(128, 256), workloads=("nemotronh",)) == [
        "56b fp8 256",
        "56b fp8 128",
    ]


def test_tiny_is_found_on_cpus_alone(workloads: Workloads) -> None:
    tiny = found(workloads, CPU, "cpu", min_scale=True)
    assert tiny == ["tiny bf16 1", "tiny fp32 1"] * 3
    assert not [text for text in found(workloads, max_scale=2048) if "tiny" in text]


def test_tiny_by_name_is_found_anywhere(workloads: Workloads) -> None:
    assert found(workloads, max_scale=2, workloads=("nemotron4_tiny",), dtypes=("bf16",)) == [
        "tiny bf16 2",
        "tiny bf16 1",
    ]


def test_another_gpu_type_finds_other_rows(workloads: Workloads) -> None:
    config = ClusterConfig(
        cluster_type="slurm",
        gpu_type="a100",
        gpu_types={"h200": GpuTypeConfig(like="h100")},
        kind=all_types()["slurm"],
    )
    assert found(workloads, config, "a100", min_scale=True) == ["340b bf16 128"]
    assert found(workloads, config, "h200", min_scale=True) == found(workloads, min_scale=True)


def test_strong_scaling_is_not_discovered(workloads: Workloads) -> None:
    config = ClusterConfig(cluster_type="slurm", gpu_type="gb200", kind=all_types()["slurm"])
    requests, _ = discover(workloads, config, Selection(max_scale=512), "gb200")
    assert not any(item.settings.strong_scaling for item in requests)
    names = [job.experiment_name for job in make_plan(requests, workloads, config).jobs]
    assert len(names) == len(set(names))


def test_strong_scaling_that_a_size_lacks_is_the_reason(workloads: Workloads) -> None:
    for dtypes in ((), ("bf16",)):
        with pytest.raises(UsageError) as raised:
            found(
                workloads,
                scales=(16, 64),
                workloads=("nemotron4_15b",),
                dtypes=dtypes,
                strong_scaling=True,
            )
        reason = "pretrain_nemotron4 15b has no strong scaling on h100: skipped"
        assert raised.value.message == f"nothing to run: {reason}"
    with pytest.raises(UsageError, match="has strong scaling with dtype bf16"):
        found(workloads, min_scale=True, dtypes=("bf16",), strong_scaling=True)


def test_what_is_not_installed_is_skipped(
    workloads: Workloads, wording: Callable[..., None]
) -> None:
    config = ClusterConfig(
        cluster_type="slurm",
        gpu_type="h100",
        workloads=WorkloadsConfig(installed=("pretrain_nemotronh",)),
        kind=all_types()["slurm"],
    )
    assert found(workloads, config, min_scale=True) == ["56b fp8 32"]
    with pytest.raises(UsageError) as raised:
        found(workloads, config, min_scale=True, workloads=("nemotron4",))
    assert raised.value.code == "nothing-discovered"
    wording("submit-all", describe(raised.value))


def test_what_is_installed_without_a_plugin_is_reported(
    workloads: Workloads, wording: Callable[..., None]
) -> None:
    config = ClusterConfig(
        cluster_type="slurm",
        gpu_type="h100",
        workloads=WorkloadsConfig(installed=("nemotorn",)),
        kind=all_types()["slurm"],
    )
    with pytest.raises(UsageError) as raised:
        found(workloads, config, min_scale=True)
    assert raised.value.code == "nothing-discovered"
    wording("submit-all", describe(raised.value))


def test_installed_names_in_another_spelling(workloads: Workloads) -> None:
    config = ClusterConfig(
        cluster_type="slurm",
        gpu_type="h100",
        workloads=WorkloadsConfig(installed=("nemotron-h",)),
        kind=all_types()["slurm"],
    )
    assert found(workloads, config, min_scale=True) == ["56b fp8 32"]


def test_repeats_and_profile_of_what_is_discovered(workloads: Workloads) -> None:
    (item,), _ = discover(
        workloads,
        H100,
        Selection(min_scale=True, repeats=3, profile=True, workloads=("nemotron-h_56b",)),
        "h100",
    )
    assert (item.repeats, item.settings.profile) == (3, True)


@pytest.mark.parametrize(
    ("filters", "code", "value"),
    [
        ({"max_scale": 4}, "nothing-discovered", None),
        ({"max_scale": 8, "workloads": ("nemotronh",)}, "nothing-discovered", None),
        ({"max_scale": 8, "dtypes": ("fp32",)}, "nothing-discovered", None),
        ({"max_scale": 8, "dtypes": ("bf16", "pf8")}, "dtype-unknown", "pf8"),
        ({"max_scale": 8, "workloads": ("nemotorn",)}, "workload-unknown", "nemotorn"),
    ],
)
def test_nothing_to_run_has_a_reason(
    filters: dict[str, Any],
    code: str,
    value: object,
    workloads: Workloads,
    wording: Callable[..., None],
) -> None:
    with pytest.raises(UsageError) as raised:
        found(workloads, **filters)
    assert (raised.value.code, raised.value.value) == (code, value)
    wording("submit-all", describe(raised.value))


def test_a_filter_that_matches_nothing_is_reported(
    workloads: Workloads, wording: Callable[..., None]
) -> None:
    config = ClusterConfig(cluster_type="slurm", gpu_type="a100", kind=all_types()["slurm"])
    selection = Selection(
        min_scale=True, workloads=("nemotron4", "llama3.1_8b"), dtypes=("bf16", "fp8")
    )
    requests, skipped = discover(workloads, config, selection, "a100")
    assert [(item.settings.model_size, item.dtypes) for item in requests] == [("340b", ("bf16",))]
    wording("submit-all", "\n".join(skipped))


@pytest.mark.parametrize(
    ("other", "name"), [({"max_scale": 64}, "--max-scale"), ({"min_scale": True}, "--min-scale")]
)
def test_scales_are_named_in_one_way(
    other: dict[str, Any], name: str, workloads: Workloads
) -> None:
    with pytest.raises(UsageError) as raised:
        discover(workloads, H100, Selection(scales=(64,), **other), "h100")
    assert raised.value.code == "scale-conflict"
    assert name in raised.value.message


def test_what_is_discovered_can_be_planned(workloads: Workloads) -> None:
    for gpu in ("h100", "b200", "gb200", "a100"):
        config = ClusterConfig(cluster_type="slurm", gpu_type=gpu, kind=all_types()["slurm"])
        requests, _ = discover(workloads, config, Selection(max_scale=2048), gpu)
        plan = make_plan(requests, workloads, config)
        assert plan.faults == ()
        assert len(plan.jobs) == len(requests) > 0


def listed(workloads: Workloads) -> tuple[Job, ...]:
    requests = [
        job_entry(workload="nemotron4_15b", dtypes=("fp8", "bf16"), scales=(16, 32)),
        job_entry(workload="llama3.1_8b", dtypes=("bf16",), scales=(8, 16), repeats=2),
    ]
    plan = make_plan(requests, workloads, H100)
    assert plan.faults == ()
    return plan.jobs


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        (
            {},
            [
                "15b fp8 16",
                "15b fp8 32",
                "15b bf16 16",
                "15b bf16 32",
                *["8b bf16 8"] * 2,
                *["8b bf16 16"] * 2,
            ],
        ),
        ({"dtypes": ("fp8",)}, ["15b fp8 16", "15b fp8 32"]),
        ({"max_scale": 8}, ["8b bf16 8"] * 2),
        ({"scales": (32, 8)}, ["15b fp8 32", "15b bf16 32", *["8b bf16 8"] * 2]),
        ({"min_scale": True}, ["15b fp8 16", "15b bf16 16", *["8b bf16 8"] * 2]),
        ({"workloads": ("llama3.1",), "max_scale": 8}, ["8b bf16 8"] * 2),
        ({"workloads": ("Nemotron-4_15B",), "dtypes": ("bf16",)}, ["15b bf16 16", "15b bf16 32"]),
        (
            {"min_scale": True, "scales": (16, 32)},
            ["15b fp8 16", "15b bf16 16", *["8b bf16 16"] * 2],
        ),
    ],
)
def test_filters_narrow_a_list(
    filters: dict[str, Any], kept: list[str], workloads: Workloads
) -> None:
    jobs, unmatched = narrow(listed(workloads), Selection(**filters), workloads)
    assert [f"{job.model_size} {job.dtype} {job.scale}" for job in jobs] == kept
    assert unmatched == []


def test_a_filter_that_no_job_matches_is_reported(workloads: Workloads, wording: Wording) -> None:
    selection = Selection(
        scales=(16, 64), dtypes=("fp8", "fp4"), workloads=("nemotron4", "llama3.1_70b", "nemotronh")
    )
    jobs, unmatched = narrow(listed(workloads), selection, workloads)
    assert len(jobs) == 1
    wording("submit-all", "\n".join(unmatched))


def test_filters_that_match_nothing_are_an_error(workloads: Workloads) -> None:
    with pytest.raises(UsageError) as raised:
        narrow(listed(workloads), Selection(max_scale=4), workloads)
    assert raised.value.code == "no-job-matches"


def test_repeats_and_profile_over_a_list() -> None:
    (item,) = adjust(
        [job_entry(workload="w", repeats=3, add_profile=True)], Selection(repeats=2, profile=True)
    )
    assert (item.repeats, item.settings.profile, item.add_profile) == (2, True, False)
    untouched = job_entry(workload="w", repeats=3, add_profile=True)
    assert adjust([untouched], Selection(max_scale=8)) == [untouched]
