# SPDX-License-Identifier: Apache-2.0
"""Tests of one job's numbers: every division whole, scales between, above and below the tested
ones, whole nodes.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llmb.contract.job import Job
from llmb.contract.model import ModelShape
from llmb.contract.rows import BatchRule, Row, Scales
from llmb.contract.settings import Settings
from llmb.contract.spec import Size, Workload
from llmb.errors import Fault, InputFaults, UsageError, as_fault
from llmb.plan.configure import configure
from llmb.plan.entry_faults import faults_at
from llmb.plan.limits import ClusterLimits
from llmb_testing.entries import job_entry

H100 = ClusterLimits(gpu_type="h100", rows="h100", gpus_per_node=8)
SHAPE = ModelShape(
    architecture="llama",
    layers=16,
    hidden=64,
    ffn=128,
    heads=16,
    kv_groups=8,
    vocab=100,
    seq_length=64,
)


def row(**changes: Any) -> Row:
    fields: dict[str, Any] = {
        "gpu": ("h100",),
        "dtype": ("bf16",),
        "scales": Scales((16, 32, 64)),
        "mbs": 1,
        "gbs": BatchRule.parse("4N"),
    }
    return Row(**{**fields, **changes})


def workload(*rows: Row, **changes: Any) -> Workload:
    """A workload of one size ``s``; keywords are fields of the size."""
    size = Size(**{"model": SHAPE, "rows": rows, **changes})
    return Workload(
        key="pretrain_w",
        title="W",
        sizes={"s": size},
        default_size="s",
        default_dtype="bf16",
        image="i:1",
    )


def settle(
    *rows: Row,
    scale: int = 16,
    params: dict[str, Any] | None = None,
    force: bool = False,
    limits: ClusterLimits = H100,
    strong: bool = False,
    dtype: str = "bf16",
    **size: Any,
) -> tuple[Job, list[str]]:
    own = workload(*rows, **size)
    settings = Settings(
        framework="nemo",
        workload=own.key,
        model_size="s",
        dtype=dtype,
        scale=scale,
        strong_scaling=strong,
        **params or {},
    )
    return configure(settings, own, limits, force=force)


def job(*rows: Row, **changes: Any) -> Job:
    return settle(*rows, **changes)[0]


def refusal(*rows: Row, **changes: Any) -> Fault:
    with pytest.raises(UsageError) as raised:
        settle(*rows, **changes)
    error = raised.value
    (fault,) = error.faults if isinstance(error, InputFaults) else [as_fault(error)]
    assert fault.hint
    return fault


def text_of(faults: Iterable[Fault]) -> str:
    return "".join(f"{fault}\nhint: {fault.hint}\n" for fault in faults)


def test_a_wrong_dtype_does_not_hide_a_wrong_scale(wording: Callable[..., None]) -> None:
    own = workload(row(scales=Scales((16,))), row(scales=Scales((32,)), dtype=("fp8",)))
    settings = Settings(framework="nemo", workload=own.key, model_size="s", dtype="fp9", scale=8)
    with pytest.raises(InputFaults) as raised:
        configure(settings, own, H100)
    request = job_entry(workload="w", places={8: "f:2", "fp9": "f:1"})
    faults = faults_at(raised.value, request, "f:0")
    assert [(fault.place, fault.code, fault.value) for fault in faults] == [
        ("f:1", "dtype-unknown", "fp9"),
        ("f:2", "scale-untested", 8),
    ]
    wording("submit-all", text_of(faults))


def test_data_parallel_and_accumulation_follow_from_the_row() -> None:
    found = job(row(tp=2, pp=2, cp=2, mbs=2, gbs=BatchRule.parse("8N")), scale=32)
    assert (found.trained.dp, found.trained.gbs, found.trained.ga) == (4, 256, 32)
    assert (found.nodes, found.gpus_per_node, found.trained.ep) == (4, 8, 1)


def test_params_override_the_row() -> None:
    params = {
        "tp": 4,
        "pp": 2,
        "cp": 2,
        "vp": 2,
        "mbs": 2,
        "gbs": 32,
        "max_steps": 7,
        "num_layers": 8,
    }
    found = job(row(), params=params)
    own = {name: getattr(found.trained, name) for name in params if name != "max_steps"}
    assert {**own, "max_steps": found.max_steps} == params
    assert (found.trained.dp, found.trained.ga, found.trained.model.layers) == (1, 16, 8)


def test_the_largest_scale_and_the_batch_of_each_scale_come_from_its_own_row() -> None:
    rows = (row(scales=Scales((16,)), mbs=2), row(scales=Scales((32,)), mbs=4))
    assert [job(*rows, scale=scale).trained.mbs for scale in (16, 32)] == [2, 4]


@pytest.mark.parametrize(
    ("changes", "code", "key", "value"),
    [
        ({"tp": 3}, "not-divisible", "scale tp pp cp", 3),
        ({"tp": 8, "pp": 4}, "not-divisible", "scale tp pp cp", 32),
        ({"gbs": 24}, "not-divisible", "gbs mbs scale", 16),
        ({"mbs": 3}, "not-divisible", "gbs mbs scale", 48),
        ({"pp": 2, "num_layers": 7}, "not-divisible", "num_layers pp vp", 2),
        ({"pp": 4, "vp": 3}, "not-divisible", "num_layers pp vp", 12),
        ({"vp": 2}, "vp-without-pp", "vp pp", 2),
        ({"pp": 4, "vp": 2, "gbs": 24}, "not-divisible", "gbs mbs pp vp", 4),
        ({"tp": 16}, "not-divisible", "tp", 16),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_a_remainder_is_refused_also_with_force(
    changes: dict[str, int],
    code: str,
    key: str,
    value: int,
    force: bool,
    wording: Callable[..., None],
) -> None:
    found = refusal(row(), params=changes, force=force)
    assert (found.code, found.key, found.value) == (code, key, value)
    if not force:
        wording("submit-all", text_of([found]))


def test_context_parallelism_must_divide_the_sequence() -> None:
    found = refusal(row(scales=Scales((24,))), params={"cp": 3}, scale=24)
    assert (found.code, found.key, found.value) == ("not-divisible", "cp", 6)


def test_attention_heads_must_divide() -> None:
    found = refusal(row(scales=Scales((24,)), gbs=BatchRule.parse("N")), params={"tp": 3}, scale=24)
    assert (found.code, found.key, found.value) == ("not-divisible", "tp", 3)


def test_a_batch_that_is_not_whole() -> None:
    assert refusal(row(gbs=BatchRule.parse("N/3"))).code == "batch-not-whole"
    assert job(row(gbs=BatchRule.parse("N/3")), params={"gbs": 16}).trained.gbs == 16


def test_a_list_of_stages_divides_the_layers_of_its_row_alone() -> None:
    """61 layers on 4·4 stages, as of DeepSeek V3; the batch may change, the stages may not."""
    own = row(scales=Scales((64,)), pp=4, vp=4, gbs=BatchRule.parse("64N"), layers=61)
    found = job(own, scale=64, pipeline_layout=True, params={"gbs": 2048})
    assert (found.trained.num_layers, found.trained.gbs) == (61, 2048)
    for params in ({"pp": 8}, {"vp": 2}, {"num_layers": 32}):
        fault = refusal(own, scale=64, pipeline_layout=True, params=params)
        assert (fault.code, fault.key) == ("layout-fixed", "pp vp num_layers")
        assert "for pp 4, vp 4 and 61 layers" in fault.message


@pytest.mark.parametrize(
    ("pp", "vp", "is_whole"), [(8, 8, True), (4, 4, True), (8, 7, False), (9, None, False)]
)
def test_embedding_and_loss_count_as_layers_where_the_size_says_so(
    pp: int, vp: int | None, is_whole: bool
) -> None:
    """126 layers and 2: 128 in the pipeline, as the 405b has it."""
    own = row(scales=Scales((72, 64)), pp=pp, vp=vp, gbs=BatchRule.parse("64N"), layers=126)
    scale = 72 if pp == 9 else 64
    if is_whole:
        assert job(own, scale=scale, pipeline_extra=2).trained.num_layers == 126
    else:
        found = refusal(own, scale=scale, pipeline_extra=2)
        assert (found.code, found.key, found.value) == (
            "not-divisible",
            "num_layers pp vp",
            pp * (vp or 1),
        )


def test_the_405b_splits_and_its_neighbours_do_not(workloads: dict[str, Workload]) -> None:
    def configured(**params: Any) -> Job:
        own = workloads["pretrain_llama3.1"]
        return configure(
            Settings(
                framework="nemo",
                workload=own.key,
                model_size="405b",
                dtype="fp8",
                scale=512,
                **params,
            ),
            own,
            H100,
        )[0]

    assert (
        configured().trained.num_layers,
        configured().trained.pp,
        configured().trained.vp,
        configured().trained.ga,
    ) == (126, 8, 8, 64)
    assert configured(vp=4).experiment_name.endswith("_vp4_mbs1_gbs256")
    for params in ({"vp": 6}, {"num_layers": 122}):
        with pytest.raises(UsageError) as raised:
            configured(**params)
        assert (raised.value.code, raised.value.key) == ("not-divisible", "num_layers pp vp")


def test_one_virtual_stage_needs_no_pipeline() -> None:
    assert job(row(vp=1)).trained.vp == 1


def test_accumulation_may_be_odd_without_virtual_stages() -> None:
    assert job(row(pp=2, gbs=BatchRule.parse("24"))).trained.ga == 3


# Scales: what is tested, what is asked for, and what comes of it.
TESTED = (row(scales=Scales((16, 64)), mbs=1), row(scales=Scales((128,)), mbs=2))


@pytest.mark.parametrize("scale", [16, 64, 128])
def test_a_tested_scale_has_no_warning(scale: int) -> None:
    assert settle(*TESTED, scale=scale)[1] == []


@pytest.mark.parametrize("scale", [256, 192, 1024])
def test_above_the_largest_is_a_warning_and_the_largest_row_applies(
    scale: int, wording: Callable[..., None]
) -> None:
    found, (warning,) = settle(*TESTED, scale=scale)
    wording("submit-all", warning)
    assert (found.trained.mbs, found.trained.gbs) == (2, 4 * scale)


@pytest.mark.parametrize("scale", [8, 32, 96])
def test_below_and_between_is_an_error_that_force_lifts(
    scale: int, wording: Callable[..., None]
) -> None:
    fault = refusal(*TESTED, scale=scale)
    assert (fault.code, fault.key, fault.value) == ("scale-untested", "scale", scale)
    found, (warning,) = settle(*TESTED, scale=scale, force=True)
    assert found.scale == scale
    assert found.trained.mbs == 1
    wording("submit-all", f"{text_of([fault])}{warning}")


@pytest.mark.parametrize("scale", [8, 32, 256])
def test_exact_scales_have_no_other_but_by_force(scale: int) -> None:
    assert refusal(*TESTED, scale=scale, exact_scales=True).code == "scale-untested"
    assert settle(*TESTED, scale=scale, exact_scales=True, force=True)[1] != []


def test_a_scale_that_only_one_dtype_lacks_names_the_dtype(wording: Callable[..., None]) -> None:
    rows = (row(), row(dtype=("fp8",), scales=Scales((32, 64))))
    wording("submit-all", text_of([refusal(*rows, dtype="fp8")]))


def test_a_type_and_a_dtype_that_no_row_has(wording: Callable[..., None]) -> None:
    a100 = ClusterLimits(gpu_type="a100", rows="a100", gpus_per_node=8)
    faults = [
        refusal(row(), limits=a100),
        refusal(row(), dtype="bf61"),
        refusal(row(), dtype="fp8"),
    ]
    cpu, known = row(gpu=("cpu",), dtype=("fp32", "bf16")), row(dtype=("fp8",))
    here = ClusterLimits(gpu_type="cpu", rows="cpu", gpus_per_node=1)
    faults.append(refusal(cpu, known, limits=here, dtype="fp8"))
    assert [fault.code for fault in faults] == ["gpu-type-unsupported", *["dtype-unknown"] * 3]
    wording("submit-all", text_of(faults))


def test_a_type_without_rows_names_the_type_whose_rows_fit() -> None:
    h200 = ClusterLimits(gpu_type="h200", rows="h200", gpus_per_node=8)
    added = "gpu_types: {h200: {like: h100}}"  # of cluster_config.yaml
    assert added in (refusal(row(gpu=("h100",)), limits=h200).hint or "")
    assert "like" not in (refusal(row(gpu=("b200",)), limits=h200).hint or "")


def test_strong_scaling_has_rows_of_its_own() -> None:
    rows = (row(), row(strong_scaling=True, gbs=BatchRule.parse("512"), time_limit_minutes=35))
    assert (job(*rows).trained.gbs, job(*rows).time_limit) == (64, 1200)
    assert (job(*rows, strong=True).trained.gbs, job(*rows, strong=True).time_limit) == (512, 2100)
    assert refusal(row(), strong=True).code == "no-strong-scaling"


@pytest.mark.parametrize(("scale", "nodes"), [(16, 2), (64, 8)])
def test_a_job_takes_whole_nodes(scale: int, nodes: int) -> None:
    assert (job(row(), scale=scale).nodes, job(row(), scale=scale).gpus_per_node) == (nodes, 8)


@pytest.mark.parametrize("force", [False, True])
def test_a_part_of_a_node_is_refused_even_by_force(force: bool) -> None:
    found = refusal(row(scales=Scales((12,))), scale=12, force=force)
    assert (found.code, found.key, found.value) == ("nodes-not-full", "scale", 8)


def test_a_small_model_may_share_a_node_but_not_spill_over() -> None:
    rows = row(scales=Scales((1, 2, 4, 12)))
    found = job(rows, scale=4, whole_nodes=False)
    assert (found.nodes, found.gpus_per_node) == (1, 4)
    assert refusal(rows, scale=12, whole_nodes=False).code == "nodes-not-full"


def test_on_one_machine_there_is_one_node() -> None:
    here = ClusterLimits(gpu_type="cpu", rows="cpu", gpus_per_node=1, one_machine=True)
    found = job(row(gpu=("any",), scales=Scales((4,))), scale=4, limits=here)
    assert (found.nodes, found.gpus_per_node, found.gpu_type) == (1, 4, "cpu")


def test_a_node_of_four() -> None:
    four = ClusterLimits(gpu_type="gb200", rows="h100", gpus_per_node=4)
    assert (job(row(), limits=four).nodes, job(row(), limits=four).gpu_type) == (4, "gb200")


@pytest.mark.parametrize(("needs_image", "image"), [(True, "i:1"), (False, None)])
def test_an_image_where_the_place_needs_one(needs_image: bool, image: str | None) -> None:
    limits = ClusterLimits(gpu_type="h100", rows="h100", gpus_per_node=8, needs_image=needs_image)
    assert job(row(), limits=limits).image == image


@pytest.mark.parametrize(
    ("params", "end"),
    [
        ({}, "tp1_pp1_cp1_vpNone_mbs1_gbs64"),
        ({"vp": 1}, "tp1_pp1_cp1_vp1_mbs1_gbs64"),
        ({"tp": 2, "cp": 2, "gbs": 32, "mbs": 2}, "tp2_pp1_cp2_vpNone_mbs2_gbs32"),
        ({"pp": 4, "vp": 2}, "tp1_pp4_cp1_vp2_mbs1_gbs64"),
        ({"max_steps": 10}, "tp1_pp1_cp1_vpNone_mbs1_gbs64_steps10"),
        ({"num_layers": 8, "max_steps": 10}, "tp1_pp1_cp1_vpNone_mbs1_gbs64_steps10_layers8"),
    ],
)
def test_what_changes_goes_into_the_name(params: dict[str, int], end: str) -> None:
    assert job(row(), params=params).experiment_name == f"pretrain_w_s_bf16_gpus16_{end}"


def test_fewer_layers_of_a_hybrid_keep_the_beginning_of_its_pattern(
    workloads: dict[str, Workload],
) -> None:
    def configured(layers: int) -> Job:
        own = workloads["pretrain_nemotronh"]
        settings = Settings(
            framework="nemo",
            workload=own.key,
            model_size="56b",
            dtype="fp8",
            scale=32,
            num_layers=layers,
        )
        return configure(settings, own, H100)[0]

    assert configured(11).trained.model.pattern == "M-M-M-M*-M-"
    with pytest.raises(UsageError) as raised:
        configured(119)
    assert (raised.value.code, raised.value.value) == ("pattern-too-short", 119)


@given(
    scale=st.sampled_from([16, 32, 64]),
    params=st.dictionaries(
        st.sampled_from(["tp", "pp", "cp", "vp", "mbs", "gbs"]), st.integers(1, 70)
    ),
)
def test_a_job_is_whole_or_refused(scale: int, params: dict[str, int]) -> None:
    try:
        found = job(row(), scale=scale, params=params)
    except UsageError:
        return
    assert found.trained.dp * found.trained.tp * found.trained.pp * found.trained.cp == scale
    assert found.trained.ga * found.trained.mbs * found.trained.dp == found.trained.gbs
    assert found.nodes * found.gpus_per_node == scale
    assert found.trained.num_layers % (found.trained.pp * (found.trained.vp or 1)) == 0
    assert (found.trained.vp or 1) == 1 or (
        found.trained.pp > 1 and found.trained.ga % found.trained.pp == 0
    )
