# SPDX-License-Identifier: Apache-2.0
"""Tests batches as rules, scales as ranges, and what a workload's sizes answer."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llmb.contract.nemo_recipe import NemoRecipe
from llmb.contract.rows import BatchRule, Row, Scales
from llmb.contract.spec import Checkpoint, Size, Workload, read_workload
from llmb.core import typed
from llmb.core.yamlfile import Document
from llmb.errors import InputFaults, KeyFaultError

counts = st.integers(min_value=1, max_value=1 << 20)


@pytest.mark.parametrize(
    ("text", "gpus", "batch"),
    [
        ("4N", 16, 64),
        ("N", 7, 7),
        ("N/4", 128, 32),
        ("3N/2", 8, 12),
        ("16 N", 8, 128),
        (512, 128, 512),
        ("512", 4, 512),
    ],
)
def test_a_batch_at_a_scale(text: str | int, gpus: int, batch: int) -> None:
    assert BatchRule.parse(text).batch(gpus) == batch


def test_a_batch_that_is_not_whole_says_so() -> None:
    assert BatchRule.parse("N/4").batch(6) is None


@pytest.mark.parametrize(
    "text", ["", "0", "0N", "N/0", "-4", "4.0", 4.5, "4n", "N4", "N/", "4N/", "2*N", None, True]
)
def test_what_is_no_batch_is_refused(text: Any) -> None:
    with pytest.raises(KeyFaultError) as caught:
        BatchRule.parse(text)
    assert (caught.value.code, caught.value.value) == ("batch-invalid", text)


@given(times=counts, over=counts, gpus=counts)
def test_a_rule_is_times_n_over(times: int, over: int, gpus: int) -> None:
    assert BatchRule.parse(f"{times}N/{over}").batch(gpus) == (
        times * gpus / over if times * gpus % over == 0 else None
    )


@given(text=st.from_regex(r"\A([1-9][0-9]{0,5})?N(/[1-9][0-9]{0,5})?\Z") | counts.map(str))
def test_a_rule_survives_writing(text: str) -> None:
    rule = BatchRule.parse(text)
    assert BatchRule.parse(rule.unparse()) == rule


@given(batch=counts, first=counts, second=counts)
def test_a_fixed_batch_knows_no_scale(batch: int, first: int, second: int) -> None:
    rule = BatchRule.parse(batch)
    assert rule.batch(first) == rule.batch(second) == batch


def test_scales_in_each_spelling() -> None:
    assert Scales.parse("16..128").counts == (16, 32, 64, 128)
    assert Scales.parse("24..96").counts == (24, 48, 96)
    assert Scales.parse("8..8").counts == (8,)
    assert Scales.parse([64, 8, 8, 16]).counts == (8, 16, 64)
    assert Scales.parse(32).counts == (32,)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("16..100", "range-invalid"),
        ("128..16", "range-invalid"),
        ("0..8", "range-invalid"),
        ("16-128", "scales-invalid"),
        ([], "scales-invalid"),
        ([8, 0], "scales-invalid"),
        ([8, True], "scales-invalid"),
        ([8, "16"], "scales-invalid"),
        (True, "scales-invalid"),
        (None, "scales-invalid"),
    ],
)
def test_what_are_no_scales_is_refused(value: Any, code: str) -> None:
    with pytest.raises(KeyFaultError) as caught:
        Scales.parse(value)
    assert (caught.value.code, caught.value.value) == (code, value)


@pytest.mark.parametrize("parse", [BatchRule.parse, Scales.parse])
def test_the_fault_has_the_ways_to_write_one(
    parse: Callable[[Any], object], wording: Callable[..., None]
) -> None:
    for value in ("4M", "8..60"):
        with pytest.raises(KeyFaultError) as caught:
            parse(value)
        wording("yaml", str(caught.value))


@given(first=st.integers(1, 1000), doublings=st.integers(0, 12))
def test_a_range_doubles_from_its_first_to_its_last(first: int, doublings: int) -> None:
    found = Scales.parse(f"{first}..{first << doublings}").counts
    assert found[0] == first
    assert len(found) == doublings + 1
    assert all(after == 2 * before for before, after in itertools.pairwise(found))


@given(first=st.integers(1, 1000), last=st.integers(1, 100_000))
def test_a_range_that_does_not_end_by_doubling_is_an_error(first: int, last: int) -> None:
    ends = {first << power for power in range(18)}
    if last in ends:
        assert Scales.parse(f"{first}..{last}").counts[-1] == last
    else:
        with pytest.raises(KeyFaultError) as caught:
            Scales.parse(f"{first}..{last}")
        assert caught.value.code == "range-invalid"


@given(st.lists(counts, min_size=1))
def test_scales_are_ascending_once_each_and_survive_writing(values: list[int]) -> None:
    scales = Scales.parse(values)
    assert list(scales.counts) == sorted(set(values))
    assert Scales.parse(scales.unparse()) == scales


MODEL = {
    "architecture": "llama",
    "layers": 2,
    "hidden": 8,
    "ffn": 8,
    "heads": 2,
    "kv_groups": 1,
    "vocab": 8,
    "seq_length": 8,
}


def row(**changes: Any) -> dict[str, Any]:
    return {"gpu": "h100", "dtype": "bf16", "scales": [8], "mbs": 1, "gbs": "N"} | changes


def size(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "rows": list(rows or [row()])} | changes


def workload(**changes: Any) -> Workload:
    data = {
        "key": "w",
        "title": "W",
        "default_size": "s",
        "default_dtype": "bf16",
        "sizes": {"s": size()},
    }
    return typed.read(Workload, Document(name="w.yaml", data=data | changes))


def read_size(**changes: Any) -> Size:
    return typed.read(Size, Document(name="w.yaml", data=size(**changes)))


TABLE = read_size(
    rows=[
        row(gpu=["h100", "b200"], dtype=["fp8", "bf16"], scales="16..64"),
        row(gpu="h100", dtype="bf16", scales=[8]),
        row(gpu="b200", dtype="fp8", scales=[128], strong_scaling=True),
        row(gpu="any", dtype="fp32", scales=[1]),
    ]
)


def test_gpu_types_and_dtypes_have_the_order_of_the_rows() -> None:
    assert TABLE.gpu_types() == ["h100", "b200", "any"]
    assert TABLE.dtypes("h100") == ["fp8", "bf16", "fp32"]


def test_any_is_every_gpu_type() -> None:
    assert TABLE.dtypes("cpu") == ["fp32"]
    assert TABLE.scales("cpu", "fp32") == [1]


def test_a_gpu_type_matches_whole_never_by_a_part() -> None:
    assert TABLE.scales("gb200", "fp8") == []


def test_scales_come_from_all_rows_that_fit_and_strong_scaling_only_when_asked_for() -> None:
    assert TABLE.scales("h100", "bf16") == [8, 16, 32, 64]
    assert TABLE.scales("b200", "fp8") == [16, 32, 64]
    assert TABLE.scales("b200", "fp8", strong=True) == [128]


def test_sizes_on_a_gpu_type() -> None:
    found = workload(sizes={"s": size(), "t": size(row(gpu="b200"))})
    assert list(found.on("b200")) == ["t"]
    assert found.on("a100") == {}


def test_defaults_of_a_row_are_plain_data_parallelism() -> None:
    plain = read_size().rows[0]
    assert (plain.tp, plain.pp, plain.cp, plain.vp, plain.ep) == (1, 1, 1, None, 1)
    assert (plain.layers, plain.strong_scaling, plain.time_limit_minutes) == (None, False, None)


@pytest.mark.parametrize(
    "name", ["tp", "pp", "cp", "vp", "ep", "mbs", "layers", "time_limit_minutes"]
)
def test_a_row_of_less_than_one_is_refused(name: str) -> None:
    with pytest.raises(InputFaults) as caught:
        read_size(rows=[row(**{name: 0})])
    assert (caught.value.code, caught.value.key) == ("value-not-allowed", f"rows.0.{name}")


@pytest.mark.parametrize("name", ["gpu", "dtype"])
def test_a_row_for_nothing_is_refused(name: str) -> None:
    with pytest.raises(InputFaults) as caught:
        read_size(rows=[row(**{name: []})])
    assert (caught.value.code, caught.value.key) == ("value-not-allowed", "rows.0")


def test_a_row_has_settings_of_nemo_and_the_memory_of_a_gpu() -> None:
    overlap = {"fp8": "userbuffers_x", "bf16": None}
    found = read_size(
        rows=[row(dtype=["fp8", "bf16"], cuda_graphs=True, userbuffers=overlap, memory_gb=80)],
        nemo={"recipe": "x_1b", "flops_name": "x", "vocab": 8, "environment": {"A": "1"}},
        checkpoint={"size_gb": 15, "save": {"h100": "8..32"}, "load": {"h100": 16}},
    )
    (own,) = found.rows
    assert (own.cuda_graphs, own.userbuffers, own.memory_gb) == (True, overlap, 80)
    assert found.nemo == NemoRecipe(recipe="x_1b", flops_name="x", vocab=8, environment={"A": "1"})
    assert found.checkpoint == Checkpoint(
        size_gb=15, save={"h100": Scales((8, 16, 32))}, load={"h100": 16}
    )


def test_a_row_follows_a_release_at_each_of_its_scales() -> None:
    nemo = {
        "recipe": "x",
        "flops_name": "x",
        "vocab": 8,
        "environment": {"A": "1", "B": "1"},
        "releases": {"25.04": {"cross_entropy": "native", "environment": {"A": None, "C": "2"}}},
    }
    found = read_size(
        rows=[row(scales="16..64", releases={"25.05": 32, "25.04": [16, 64]})], nemo=nemo
    )
    (own,) = found.rows
    # A scale between takes the settings of the nearest one below, one below all those of the first.
    assert {scale: own.release(scale) for scale in (8, 16, 32, 48, 64, 128)} == {
        8: "25.04",
        16: "25.04",
        32: "25.05",
        48: "25.05",
        64: "25.04",
        128: "25.04",
    }
    assert found.nemo is not None
    assert found.nemo.of("25.05") == found.nemo.of(None) == found.nemo
    older = found.nemo.of("25.04")
    assert (older.cross_entropy, older.precision_aware_optimizer) == ("native", True)
    assert older.environment == {"B": "1", "C": "2"}


@pytest.mark.parametrize("releases", [{"25.05": 32}, {"25.05": "16..64", "25.04": 32}])
def test_each_scale_follows_one_release(releases: dict[str, Any]) -> None:
    with pytest.raises(InputFaults) as caught:
        read_size(rows=[row(scales="16..64", releases=releases)])
    assert (caught.value.code, caught.value.key) == ("value-not-allowed", "rows.0.releases")


def test_a_release_that_no_row_follows_is_refused() -> None:
    nemo = {
        "recipe": "x",
        "flops_name": "x",
        "vocab": 8,
        "releases": {"25.4": {"cross_entropy": "native"}},
    }
    with pytest.raises(InputFaults) as caught:
        read_size(rows=[row(scales=16, releases={"25.04": 16})], nemo=nemo)
    assert (caught.value.code, caught.value.key) == ("release-unknown", "nemo.releases.25.4")


def test_user_buffers_are_of_the_rows_own_dtypes() -> None:
    with pytest.raises(InputFaults) as caught:
        read_size(rows=[row(userbuffers={"fp8": "userbuffers_x"})])
    assert (caught.value.code, caught.value.key) == ("dtype-unknown", "rows.0.userbuffers.fp8")
    assert "bf16" in (caught.value.faults[0].hint or "")


@pytest.mark.parametrize(
    ("changes", "code", "key", "value"),
    [
        ({"nemo": {"recipe": "x", "vocab": 8}}, "key-missing", "nemo", "flops_name"),
        (
            {"nemo": {"recipe": "x", "flops_name": "x", "vocab": 0}},
            "value-not-allowed",
            "nemo.vocab",
            None,
        ),
        (
            {"nemo": {"recipe": "x", "flops_name": "x", "vocab": 8, "gatd": True}},
            "key-unknown",
            "nemo.gatd",
            "gatd",
        ),
        (
            {"checkpoint": {"size_gb": 1, "save": {"h100": "8..60"}}},
            "range-invalid",
            "checkpoint.save.h100",
            "8..60",
        ),
    ],
)
def test_faults_outside_of_the_rows_have_their_key(
    changes: dict[str, Any], code: str, key: str, value: object
) -> None:
    with pytest.raises(InputFaults) as caught:
        read_size(**changes)
    assert (caught.value.code, caught.value.key) == (code, key)
    assert caught.value.value in (value, 0)


def test_two_rows_for_one_case_are_refused() -> None:
    with pytest.raises(InputFaults) as caught:
        read_size(rows=[row(scales="8..32"), row(gpu=["b200", "h100"], scales=[16], tp=2)])
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "row-duplicate",
        "rows",
        ("h100", "bf16", 16),
    )


def test_a_strong_row_beside_a_weak_one_is_no_clash() -> None:
    both = read_size(rows=[row(), row(strong_scaling=True, gbs=512)])
    assert [one.gbs and one.gbs.text for one in both.rows] == ["N", "512"]


@pytest.mark.parametrize("name", ["", "../x", "a b", "a/b", ".x", "-x", "é", "x\n"])
def test_names_that_cannot_be_folders_are_refused(name: str) -> None:
    for changes in ({"key": name}, {"sizes": {name: size(row())}, "default_size": name}):
        with pytest.raises(InputFaults) as caught:
            workload(**changes)
        assert (caught.value.code, caught.value.value) == ("name-invalid", name)
    with pytest.raises(InputFaults) as caught:
        read_size(rows=[row(dtype=name)])
    assert (caught.value.code, caught.value.key) == ("name-invalid", "rows.0.dtype")


@pytest.mark.parametrize("name", ["max_steps", "time_limit_minutes"])
def test_a_workload_of_no_steps_or_no_time_is_refused(name: str) -> None:
    with pytest.raises(InputFaults) as caught:
        workload(**{name: 0})
    assert (caught.value.code, caught.value.key) == ("value-not-allowed", name)


def test_a_size_without_rows_is_refused() -> None:
    with pytest.raises(InputFaults) as caught:
        workload(sizes={"s": size(rows=[])})
    assert "gbs: 4N" in str(caught.value.faults[0].hint)
    assert (caught.value.code, caught.value.key) == ("rows-missing", "sizes.s.rows")


def test_a_size_of_megatron_bridge_alone_has_no_rows() -> None:
    read = workload(bridge="bridge.yaml", sizes={"s": size(rows=[])})
    assert read.on("h100") == {}


def test_the_default_size_must_exist() -> None:
    with pytest.raises(InputFaults) as caught:
        workload(default_size="x")
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "size-unknown",
        "default_size",
        "x",
    )


def test_a_proxy_must_exist() -> None:
    with pytest.raises(InputFaults) as caught:
        workload(sizes={"s": size(proxy="p")})
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "size-unknown",
        "sizes.s.proxy",
        "p",
    )


def test_a_workload_survives_writing() -> None:
    written = workload(
        sizes={"s": size(row(gpu=["h100", "b200"], scales="8..64", gbs="N/2", vp=4), proxy="s")}
    )
    assert typed.read(Workload, Document(name="again", data=typed.to_data(written))) == written


def test_a_row_is_compared_by_its_content() -> None:
    given_twice = [typed.read(Row, Document(name="r", data=row(gbs="4N"))) for _ in range(2)]
    assert given_twice[0] == given_twice[1]


FILE = """\
key: w
title: W
default_size: s
default_dtype: bf16
sizes:
  s:
    model: {architecture: llama, layers: 2, hidden: 8, ffn: 8, heads: 2, kv_groups: 1, vocab: 8, seq_length: 8}
    rows:
      - {gpu: h100, dtype: bf16, scales: 8..64, tp: 2, mbs: 1, gbs: 4N}
      - {gpu: b200, dtype: bf16, scales: 8..60, mbz: 1, mbs: 1, gbs: 4M}
"""


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    path.write_text("\n".join(FILE.splitlines()[:-1]), encoding="utf-8")
    found = read_workload(path)
    assert (found.max_steps, found.time_limit_minutes, found.image) == (50, 20, None)
    assert found.sizes["s"].scales("h100", "bf16") == [8, 16, 32, 64]


def test_every_fault_of_a_file_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    path.write_text(FILE, encoding="utf-8")
    with pytest.raises(InputFaults) as caught:
        read_workload(str(path))
    faults = caught.value.faults
    assert {fault.place for fault in faults} == {f"{path}:10"}
    found = {fault.key.rpartition(".")[2]: fault for fault in faults}
    assert {key: (fault.code, fault.value) for key, fault in found.items()} == {
        "mbz": ("key-unknown", "mbz"),
        "scales": ("range-invalid", "8..60"),
        "gbs": ("batch-invalid", "4M"),
    }
    assert "'mbs'" in (found["mbz"].hint or "")


def test_a_program_of_a_pipe_is_refused_and_a_quoted_one_is_an_argument(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    start = "\n".join(FILE.splitlines()[:-1])
    path.write_text(f"{start}\nlaunch:\n  program: ib_bench | tee out\n", encoding="utf-8")
    with pytest.raises(InputFaults) as caught:
        read_workload(path)
    (fault,) = caught.value.faults
    assert (fault.place, fault.key) == (f"{path}:11", "launch.program")
    assert "'|' is for a shell" in fault.message
    assert "program: {shell: ...}" in (fault.hint or "")
    path.write_text(f"{start}\nlaunch:\n  program: grep '|' 'a | b'\n", encoding="utf-8")
    launch = read_workload(path).launch
    assert launch is not None
    assert launch.program is not None
    assert launch.program.argv == ("grep", "|", "a | b")
