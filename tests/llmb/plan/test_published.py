# SPDX-License-Identifier: Apache-2.0
"""Tests of files of published figures: their keys, and the place of each fault."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llmb.contract.metrics import MetricSpec
from llmb.contract.spec import Workload, read_workload
from llmb.contract.window import LAST, Window
from llmb.errors import InputFaults, UsageError, describe
from llmb.plan import listing, recompute
from llmb.plan.published import check_release, release_order, releases
from llmb.plan.published_tables import read_published

WORKLOAD = """
key: pretrain_x
title: X
default_size: big
default_dtype: fp8
{published}
sizes:
  big:
    model: {{architecture: llama, layers: 2, hidden: 8, ffn: 8, heads: 2, kv_groups: 2, vocab: 8, seq_length: 8}}
    rows: [{{gpu: h100, dtype: fp8, scales: 8..16, mbs: 1, gbs: 2N}}]
"""
TABLE = """
tables:
  - {release: 25.10, source: a table, window: 11-44, steps: 50, size: big, dtype: fp8, gpu: h100, gbs: N/2,
     seq_length: 8, layers: 2, step_time_s: {8: 2, 16: 2.5}, mfu_percent: {16: 50.5}, model_flops: 1e3,
     flops_convention: gqa}
"""


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    (tmp_path / "workload.yaml").write_text(WORKLOAD.format(published="published: figures.yaml"))
    (tmp_path / "figures.yaml").write_text(TABLE)
    return read_workload(tmp_path / "workload.yaml")


@pytest.fixture
def plain(tmp_path: Path) -> Workload:
    """A workload that trains nothing."""
    (tmp_path / "workload.yaml").write_text(PLAIN)
    (tmp_path / "figures.yaml").write_text(VALUES)
    return read_workload(tmp_path / "workload.yaml")


def refused(workload: Workload, text: str) -> InputFaults:
    assert workload.published is not None
    workload.published.write_text(text)
    with pytest.raises(InputFaults) as caught:
        read_published(workload)
    return caught.value


def test_a_table_becomes_figures(workload: Workload) -> None:
    first, second = read_published(workload)
    assert (first.release, first.source, first.window, first.steps) == (
        "25.10",
        "a table",
        Window(11, 44),
        50,
    )
    assert (first.workload, first.model_size, first.dtype, first.gpu_type) == (
        "pretrain_x",
        "big",
        "fp8",
        "h100",
    )
    assert (first.scale, first.gbs, first.seq_length, first.num_layers, first.step_time_s) == (
        8,
        4,
        8,
        2,
        2.0,
    )
    assert (first.mfu, first.model_flops, first.flops_convention) == (None, None, None)
    assert (second.scale, second.gbs, second.step_time_s) == (16, 8, 2.5)
    assert (second.mfu, second.model_flops, second.flops_convention) == (0.505, 1000.0, "gqa")


def test_the_last_step_alone(workload: Workload) -> None:
    assert workload.published is not None
    workload.published.write_text(TABLE.replace("11-44", "last"))
    assert {figure.window for figure in read_published(workload)} == {LAST}


def test_the_file_lies_beside_the_workload_and_need_not_be_there(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    path.write_text(WORKLOAD.format(published=""))
    assert read_workload(path).published is None
    assert read_published(read_workload(path)) == ()
    path.write_text(WORKLOAD.format(published="published: more/figures.yaml"))
    workload = read_workload(path)  # nothing is read yet
    assert workload.published == tmp_path / "more" / "figures.yaml"
    with pytest.raises(UsageError) as caught:
        read_published(workload)
    assert (caught.value.code, caught.value.value) == ("file-unreadable", str(workload.published))


@pytest.mark.parametrize(
    ("old", "new", "code", "key"),
    [
        ("release:", "relese:", "key-unknown", "tables.0.relese"),
        ("window: 11-44", "window: 44-11", "value-not-allowed", "tables.0.window"),
        ("size: big", "size: bigg", "size-unknown", "tables.0.size"),
        ("gbs: N/2", "gbs: N/16", "batch-not-whole", "tables.0.step_time_s.8"),
        ("{8: 2, 16", "{8: 0, 16", "value-not-allowed", "tables.0.step_time_s"),
        ("{8: 2, 16", "{8: .nan, 16", "number-not-finite", "tables.0.step_time_s.8"),
        ("{8: 2, 16", "{eight: 2, 16", "key-invalid", "tables.0.step_time_s"),
        ("{8: 2, 16", "{8: two, 16", "value-type", "tables.0.step_time_s.8"),
        ("{16: 50.5}", "{32: 50.5}", "step-time-missing", "tables.0.mfu_percent.32"),
        ("flops_convention: gqa", "peak_tflops: 1.0", "key-missing", "tables.0"),
        ("steps: 50", "steps: 0", "value-not-allowed", "tables.0.steps"),
        ("seq_length: 8, ", "", "key-missing", "tables.0"),
    ],
    ids=[
        "key",
        "window",
        "size",
        "batch",
        "zero",
        "nan",
        "count",
        "text",
        "no time",
        "no flops",
        "steps",
        "missing",
    ],
)
def test_a_fault_has_its_place(
    old: str, new: str, code: str, key: str, workload: Workload, wording: Callable[..., None]
) -> None:
    assert old in TABLE
    error = refused(workload, TABLE.replace(old, new))
    assert (error.code, error.key) == (code, key)
    wording("yaml", describe(error))


def test_two_figures_for_one_thing_are_refused(workload: Workload) -> None:
    twice = TABLE + TABLE.replace("\ntables:\n", "").replace("16: 2.5}", "16: 2.6}")
    found = [(fault.code, fault.value) for fault in refused(workload, twice).faults]
    assert found == [
        (
            "figure-duplicate",
            ("25.10", "big", "fp8", scale, "h100", batch, 8, 2, "step_time", (), "nemo"),
        )
        for scale, batch in ((8, 4), (16, 8))
    ]


def test_other_batches_of_one_scale_are_other_figures(workload: Workload) -> None:
    assert workload.published is not None
    workload.published.write_text(
        TABLE + TABLE.replace("\ntables:\n", "").replace("gbs: N/2", "gbs: 512")
    )
    assert [figure.gbs for figure in read_published(workload)] == [4, 8, 512, 512]


def test_releases_sort_by_their_numbers(workload: Workload) -> None:
    words = ["24.11", "24.11.1", "25.04", "25.9", "25.10"]
    assert sorted(["25.10", "25.9", "24.11.1", "25.04", "24.11"], key=release_order) == words
    figure = read_published(workload)[0]
    assert releases([replace(figure, release="25.9"), figure, figure]) == ["25.9", "25.10"]


def test_a_release_that_is_not_known(workload: Workload) -> None:
    figures = read_published(workload)
    check_release("25.10", figures)
    with pytest.raises(UsageError) as caught:
        check_release("25.1", figures)
    assert (caught.value.code, caught.value.value) == ("release-unknown", "25.1")
    assert "25.10" in str(caught.value.hint)
    with pytest.raises(UsageError):
        check_release("25.1", ())


PLAIN = """
key: microbench
title: Microbenchmarks
default_size: all_reduce
default_dtype: bf16
metrics: [{name: busbw, unit: GB/s}, {name: latency, unit: us, better: lower}]
parameters: {message_size: {default: 16M, choices: [16M, 256M]}, algorithm: {default: ring}}
published: figures.yaml
sizes: {all_reduce: {rows: [{gpu: any, dtype: bf16, scales: 8..32}]}}
"""
VALUES = """
tables:
  - {release: "1.0", source: s, window: 4-17, steps: 20, size: all_reduce, dtype: bf16, gpu: h100,
     parameters: {message_size: 256M}, metric: busbw, values: {8: 480.2, 16: 366}}
"""


def test_a_table_of_a_metric_becomes_figures_with_all_parameters(plain: Workload) -> None:
    first, second = read_published(plain)
    assert (first.metric, first.value, first.scale) == (
        MetricSpec(name="busbw", unit="GB/s"),
        480.2,
        8,
    )
    assert first.parameters == {"message_size": "256M", "algorithm": "ring"}
    assert (
        first.gbs,
        first.seq_length,
        first.num_layers,
        first.step_time_s,
        first.tokens_rate,
    ) == (None,) * 5
    assert (second.scale, second.value) == (16, 366.0)


@pytest.mark.parametrize(
    ("old", "new", "code", "key"),
    [
        ("metric: busbw", "metric: busbv", "metric-unknown", "tables.0.metric"),
        ("metric: busbw", "metric: step_time", "metric-unknown", "tables.0.metric"),
        ("metric: busbw, ", "", "key-missing", "tables.0"),
        (", values: {8: 480.2, 16: 366}", "", "key-missing", "tables.0"),
        ("metric: busbw, values: {8: 480.2, 16: 366}", "", "key-missing", "tables.0"),
        (
            "{message_size: 256M}",
            "{mesage_size: 256M}",
            "parameter-unknown",
            "tables.0.parameters.mesage_size",
        ),
        (
            "{message_size: 256M}",
            "{message_size: 1M}",
            "value-not-allowed",
            "tables.0.parameters.message_size",
        ),
        ("metric: busbw", "gbs: 4N, metric: busbw", "not-training", "tables.0.gbs"),
        ("metric: busbw", "layers: 4, metric: busbw", "not-training", "tables.0.layers"),
        ("metric: busbw", "step_time_s: {8: 1}, metric: busbw", "key-excess", "tables.0.values"),
        ("{8: 480.2", "{8: 0", "value-not-allowed", "tables.0.values"),
    ],
)
def test_faults_of_a_table_of_a_metric(
    old: str, new: str, code: str, key: str, plain: Workload, wording: Callable[..., None]
) -> None:
    assert old in VALUES
    error = refused(plain, VALUES.replace(old, new))
    assert (error.code, error.key) == (code, key)
    wording("yaml", describe(error))


def test_the_table_of_figures_has_the_metric_only_where_it_is_no_step_time(plain: Workload) -> None:
    rows = listing.figures(read_published(plain))
    keys = [column.key for column in listing.figure_columns(rows)]
    assert keys[6:] == ["parameters", "window", "steps", "metric", "value", "unit"]
    assert {(row["metric"], row["unit"], row["step_time_s"]) for row in rows} == {
        ("busbw", "GB/s", None)
    }
    assert recompute.disagreements(read_published(plain), plain) == []


def test_one_release_may_have_several_metrics_and_parameters(plain: Workload) -> None:
    assert plain.published is not None
    row = VALUES.replace("\ntables:\n", "")
    more = VALUES + row.replace("busbw", "latency") + row.replace("{message_size: 256M}", "{}")
    plain.published.write_text(more)
    assert [figure.metric.name for figure in read_published(plain)] == ["busbw"] * 2 + [
        "latency"
    ] * 2 + ["busbw"] * 2
    twice = refused(plain, VALUES + row)
    assert {fault.code for fault in twice.faults} == {"figure-duplicate"}
    assert len(twice.faults) == 2


def test_training_may_publish_tokens_per_second(workload: Workload) -> None:
    assert workload.published is not None
    text = (
        TABLE[: TABLE.index("step_time_s")]
        + "metric: tokens_per_second_per_gpu, values: {8: 2, 16: 3}}\n"
    )
    workload.published.write_text(text)
    first, _ = read_published(workload)
    assert (first.metric.name, first.metric.unit, first.value) == (
        "tokens_per_second_per_gpu",
        "tokens/s/GPU",
        2.0,
    )
    assert (first.step_time_s, first.seconds_per_step) == (None, 4 * 8 / 2.0 / 8)
    refused_text = text.replace("gbs: N/2,", "")
    error = refused(workload, refused_text)
    assert (error.code, error.key) == ("key-missing", "tables.0")


def test_the_example_of_a_metric_in_the_documentation(plain: Workload) -> None:
    page = Path(__file__).parents[3].joinpath("docs", "workload-yaml.md").read_text("utf-8")
    (example,) = [
        text
        for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
        if "metric: busbw" in text
    ]
    assert plain.published is not None
    plain.published.write_text("tables:\n" + example)
    assert [(figure.scale, figure.value) for figure in read_published(plain)] == [
        (8, 480.2),
        (16, 366.0),
    ]


def test_the_example_in_the_documentation(workload: Workload) -> None:
    page = Path(__file__).parents[3].joinpath("docs", "workload-yaml.md").read_text("utf-8")
    (example,) = [
        text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "tables:" in text
    ]
    assert workload.published is not None
    workload.published.write_text(example.replace("size: 1b", "size: big"))
    first, second = read_published(workload)
    assert (first.release, first.scale, first.gbs, first.model_flops) == ("1.0", 8, 128, 3.7e13)
    assert first.mfu == pytest.approx(0.3938)
    assert (second.scale, second.step_time_s, second.mfu) == (16, 1.53, None)
