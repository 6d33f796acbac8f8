# SPDX-License-Identifier: Apache-2.0
"""Tests of one job's numbers: every division whole, scales between, above and below the tested ones, whole nodes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmb.errors import InputFaults, UsageError
from llmb.planning.configure import Place, Wish, configure
from llmb.runs.job import Job
from llmb.workload.model import ModelShape
from llmb.workload.rows import BatchRule, Row, Scales
from llmb.workload.spec import Size, Workload

H100 = Place(gpu_type="h100", rows="h100", gpus_per_node=8)
SHAPE = ModelShape(architecture="llama", layers=16, hidden=64, ffn=128, heads=16, kv_groups=8, vocab=100, seq_length=64)


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
    return Workload(key="pretrain_w", title="W", sizes={"s": size}, default_size="s", default_dtype="bf16", image="i:1")


def settle(
    *rows: Row,
    scale: int = 16,
    params: dict[str, int] | None = None,
    force: bool = False,
    place: Place = H100,
    strong: bool = False,
    dtype: str = "bf16",
    **size: Any,
) -> tuple[Job, list[str]]:
    wish = Wish(
        workload=workload(*rows, **size), size="s", dtype=dtype, scale=scale, params=params or {}, strong_scaling=strong
    )
    return configure(wish, place, force=force)


def job(*rows: Row, **changes: Any) -> Job:
    return settle(*rows, **changes)[0]


def refusal(*rows: Row, **changes: Any) -> str:
    with pytest.raises(UsageError) as raised:
        settle(*rows, **changes)
    error = raised.value
    (hint,) = [fault.hint for fault in error.faults] if isinstance(error, InputFaults) else [error.hint]
    assert hint
    return f"{error.message} | {hint}"


def test_a_wrong_dtype_does_not_hide_a_wrong_scale() -> None:
    own = workload(row(scales=Scales((16,))), row(scales=Scales((32,)), dtype=("fp8",)))
    wish = Wish(workload=own, size="s", dtype="fp9", scale=8, params={}, places={8: "f:2", "fp9": "f:1"})
    with pytest.raises(InputFaults) as raised:
        configure(wish, H100)
    assert [str(fault) for fault in raised.value.faults] == [
        "f:1: pretrain_w s on h100 has no dtype 'fp9'",
        "f:2: pretrain_w s on h100 has no scale 8",
    ]
    assert "tested are 16, 32;" in str(raised.value.faults[1].hint)


def test_data_parallel_and_accumulation_follow_from_the_row() -> None:
    found = job(row(tp=2, pp=2, cp=2, mbs=2, gbs=BatchRule.parse("8N")), scale=32)
    assert (found.dp, found.gbs, found.ga) == (4, 256, 32)
    assert (found.nodes, found.gpus_per_node, found.ep) == (4, 8, 1)


def test_params_come_over_the_row() -> None:
    params = {"tp": 4, "pp": 2, "cp": 2, "vp": 2, "mbs": 2, "gbs": 32, "max_steps": 7, "num_layers": 8}
    found = job(row(), params=params)
    assert {name: getattr(found, name) for name in params} == params
    assert (found.dp, found.ga, found.model.layers) == (1, 16, 8)


def test_the_largest_scale_and_the_batch_of_each_scale_come_from_its_own_row() -> None:
    rows = (row(scales=Scales((16,)), mbs=2), row(scales=Scales((32,)), mbs=4))
    assert [job(*rows, scale=scale).mbs for scale in (16, 32)] == [2, 4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tp": 3}, "at 16 GPUs: the scale is not a multiple of tp·pp·cp = 3·1·1 = 3"),
        ({"tp": 8, "pp": 4}, "the scale is not a multiple of tp·pp·cp = 8·4·1 = 32"),
        ({"gbs": 24}, "the global batch 24 is not a multiple of mbs·dp = 1·16 = 16"),
        ({"mbs": 3}, "the global batch 64 is not a multiple of mbs·dp = 3·16 = 48"),
        ({"pp": 2, "num_layers": 7}, "7 layers is not a multiple of pp·vp = 2·1 = 2"),
        ({"pp": 4, "vp": 3}, "16 layers is not a multiple of pp·vp = 4·3 = 12"),
        ({"vp": 2}, "vp 2 needs a pipeline, pp is 1"),
        ({"pp": 4, "vp": 2, "gbs": 24}, "with vp > 1 the gradient accumulation 6 is not a multiple of pp = 4"),
        ({"tp": 16}, "8 query groups is not a multiple of tp = 16"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_what_does_not_divide_is_refused_even_by_force(changes: dict[str, int], message: str, force: bool) -> None:
    assert message in refusal(row(), params=changes, force=force)


def test_context_parallelism_must_divide_the_sequence() -> None:
    found = refusal(row(scales=Scales((24,))), params={"cp": 3}, scale=24)
    assert "the sequence length 64 is not a multiple of 2·cp = 2·3 = 6" in found


def test_attention_heads_must_divide() -> None:
    text = refusal(row(scales=Scales((24,)), gbs=BatchRule.parse("N")), params={"tp": 3}, scale=24)
    assert "16 attention heads is not a multiple of tp = 3" in text


def test_a_batch_that_is_not_whole() -> None:
    text = refusal(row(gbs=BatchRule.parse("N/3")))
    assert "the global batch N/3 is not whole" in text
    assert job(row(gbs=BatchRule.parse("N/3")), params={"gbs": 16}).gbs == 16


@pytest.mark.parametrize(("pp", "vp", "is_whole"), [(8, 8, True), (4, 4, True), (8, 7, False), (9, None, False)])
def test_embedding_and_loss_count_as_layers_where_the_size_says_so(pp: int, vp: int | None, is_whole: bool) -> None:
    """126 layers and 2: 128 in the pipeline, as the 405b has it."""
    own = row(scales=Scales((72, 64)), pp=pp, vp=vp, gbs=BatchRule.parse("64N"), layers=126)
    scale = 72 if pp == 9 else 64
    if is_whole:
        assert job(own, scale=scale, pipeline_extra=2).num_layers == 126
    else:
        text = refusal(own, scale=scale, pipeline_extra=2)
        assert f"126 layers (128 with embedding and loss) is not a multiple of pp·vp = {pp}·{vp or 1}" in text


def test_the_405b_splits_and_its_neighbours_do_not(workloads: dict[str, Workload]) -> None:
    def configured(**params: int) -> Job:
        own = workloads["pretrain_llama3.1"]
        return configure(Wish(workload=own, size="405b", dtype="fp8", scale=512, params=params), H100)[0]

    assert (configured().num_layers, configured().pp, configured().vp, configured().ga) == (126, 8, 8, 64)
    assert configured(vp=4).experiment_name.endswith("_vp4_mbs1_gbs256")
    with pytest.raises(UsageError, match="126 layers"):
        configured(vp=6)
    with pytest.raises(UsageError, match=r"122 layers \(124 with"):
        configured(num_layers=122)


def test_one_virtual_stage_needs_no_pipeline() -> None:
    assert job(row(vp=1)).vp == 1


def test_accumulation_may_be_odd_without_virtual_stages() -> None:
    assert job(row(pp=2, gbs=BatchRule.parse("24"))).ga == 3


# Scales: what is tested, what is asked for, and what comes of it.
TESTED = (row(scales=Scales((16, 64)), mbs=1), row(scales=Scales((128,)), mbs=2))


@pytest.mark.parametrize("scale", [16, 64, 128])
def test_a_tested_scale_has_no_warning(scale: int) -> None:
    assert settle(*TESTED, scale=scale)[1] == []


@pytest.mark.parametrize("scale", [256, 192, 1024])
def test_above_the_largest_is_a_warning_and_the_largest_row_counts(scale: int) -> None:
    found, warnings = settle(*TESTED, scale=scale)
    assert warnings == [
        f"pretrain_w s on h100: scale {scale} is above the tested 16, 64, 128; it is taken all the same"
    ]
    assert (found.mbs, found.gbs) == (2, 4 * scale)


@pytest.mark.parametrize("scale", [8, 32, 96])
def test_below_and_between_is_an_error_that_force_lifts(scale: int) -> None:
    fix = "tested are 16, 64, 128; --force takes another; see llmb-run list -w pretrain_w"
    assert f"has no scale {scale} | {fix}" in refusal(*TESTED, scale=scale)
    found, warnings = settle(*TESTED, scale=scale, force=True)
    assert found.scale == scale
    assert found.mbs == 1
    said = f"pretrain_w s on h100 has no scale {scale}: tested are 16, 64, 128; --force takes it all the same"
    assert warnings == [said]


@pytest.mark.parametrize("scale", [8, 32, 256])
def test_exact_scales_have_no_other_but_by_force(scale: int) -> None:
    assert f"has no scale {scale}" in refusal(*TESTED, scale=scale, exact_scales=True)
    assert settle(*TESTED, scale=scale, exact_scales=True, force=True)[1] != []


def test_a_scale_that_one_dtype_alone_lacks_names_the_dtype() -> None:
    rows = (row(), row(dtype=("fp8",), scales=Scales((32, 64))))
    assert "pretrain_w s fp8 on h100 has no scale 16" in refusal(*rows, dtype="fp8")


def test_a_type_and_a_dtype_that_no_row_has() -> None:
    a100 = Place(gpu_type="a100", rows="a100", gpus_per_node=8)
    assert "pretrain_w s does not run on a100 | it runs on h100" in refusal(row(), place=a100)
    assert "pretrain_w s on h100 has no dtype 'bf61' | did you mean 'bf16'?" in refusal(row(), dtype="bf61")
    assert "has no dtype 'fp8' | its only one there is bf16" in refusal(row(), dtype="fp8")
    cpu, known = row(gpu=("cpu",), dtype=("fp32", "bf16")), row(dtype=("fp8",))
    here = Place(gpu_type="cpu", rows="cpu", gpus_per_node=1)
    assert "has no dtype 'fp8' | there it has fp32, bf16" in refusal(cpu, known, place=here, dtype="fp8")


def test_strong_scaling_has_rows_of_its_own() -> None:
    rows = (row(), row(strong_scaling=True, gbs=BatchRule.parse("512"), time_limit_minutes=35))
    assert (job(*rows).gbs, job(*rows).time_limit) == (64, 1200)
    assert (job(*rows, strong=True).gbs, job(*rows, strong=True).time_limit) == (512, 2100)
    assert "pretrain_w s has no strong scaling on h100" in refusal(row(), strong=True)


@pytest.mark.parametrize(("scale", "nodes"), [(16, 2), (64, 8)])
def test_a_job_takes_whole_nodes(scale: int, nodes: int) -> None:
    assert (job(row(), scale=scale).nodes, job(row(), scale=scale).gpus_per_node) == (nodes, 8)


@pytest.mark.parametrize("force", [False, True])
def test_a_part_of_a_node_is_refused_even_by_force(force: bool) -> None:
    text = refusal(row(scales=Scales((12,))), scale=12, force=force)
    assert "12 GPUs do not fill whole nodes of 8 | take a multiple of 8" in text


def test_a_small_model_may_share_a_node_but_not_spill_over() -> None:
    rows = row(scales=Scales((1, 2, 4, 12)))
    found = job(rows, scale=4, whole_nodes=False)
    assert (found.nodes, found.gpus_per_node) == (1, 4)
    assert "12 GPUs do not fill whole nodes of 8" in refusal(rows, scale=12, whole_nodes=False)


def test_on_one_machine_there_is_one_node() -> None:
    here = Place(gpu_type="cpu", rows="cpu", gpus_per_node=1, one_machine=True)
    found = job(row(gpu=("any",), scales=Scales((4,))), scale=4, place=here)
    assert (found.nodes, found.gpus_per_node, found.gpu_type) == (1, 4, "cpu")


def test_a_node_of_four() -> None:
    four = Place(gpu_type="gb200", rows="h100", gpus_per_node=4)
    assert (job(row(), place=four).nodes, job(row(), place=four).gpu_type) == (4, "gb200")


@pytest.mark.parametrize(("needs_image", "image"), [(True, "i:1"), (False, None)])
def test_an_image_where_the_place_needs_one(needs_image: bool, image: str | None) -> None:
    place = Place(gpu_type="h100", rows="h100", gpus_per_node=8, needs_image=needs_image)
    assert job(row(), place=place).image == image


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


def test_fewer_layers_of_a_hybrid_keep_the_beginning_of_its_pattern(workloads: dict[str, Workload]) -> None:
    def configured(layers: int) -> Job:
        wish = Wish(
            workload=workloads["pretrain_nemotronh"], size="56b", dtype="fp8", scale=32, params={"num_layers": layers}
        )
        return configure(wish, H100)[0]

    assert configured(11).model.pattern == "M-M-M-M*-M-"
    with pytest.raises(UsageError, match="a hybrid of 118 layers has no pattern for 119"):
        configured(119)


@given(
    scale=st.sampled_from([16, 32, 64]),
    params=st.dictionaries(st.sampled_from(["tp", "pp", "cp", "vp", "mbs", "gbs"]), st.integers(1, 70)),
)
def test_a_job_is_whole_or_refused(scale: int, params: dict[str, int]) -> None:
    try:
        found = job(row(), scale=scale, params=params)
    except UsageError:
        return
    assert found.dp * found.tp * found.pp * found.cp == scale
    assert found.ga * found.mbs * found.dp == found.gbs
    assert found.nodes * found.gpus_per_node == scale
    assert found.num_layers % (found.pp * (found.vp or 1)) == 0
    assert (found.vp or 1) == 1 or (found.pp > 1 and found.ga % found.pp == 0)
