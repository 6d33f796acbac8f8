# SPDX-License-Identifier: Apache-2.0
"""Tests that logs which llmb did not make are known by their names, folders and lines, and get all
their figures.
"""

import gzip
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.flops import model_flops
from llmb.contract.samples import CheckpointEvent, Environment, Samples, Step
from llmb.contract.settings import Settings
from llmb.contract.spec import Workload
from llmb.measure.describe_log import complete, describe_log, missing, model_of
from llmb.measure.facts import DETECTED, LOSS_NAN, TRACED
from llmb.measure.find_logs import find_logs, last_attempts
from llmb.measure.log_result import result_of_log
from llmb.measure.reader import LogReader
from llmb.measure.result import Result
from llmb.measure.run_result import with_times

Wording = Callable[..., None]

Workloads = dict[str, Workload]
NEMOTRON_340B = "pretrain_nemotron4_340b_fp8_gpus128_tp8_pp4_cp1_vp12_mbs1_gbs512"


def describe(
    workloads: Workloads, path: str, samples: Samples | None = None, **given: str | int
) -> Settings:
    return describe_log(Path("/runs") / path, samples or Samples(), workloads, Settings(**given))  # type: ignore[arg-type]


def completed(found: Settings, workloads: Workloads) -> Settings | None:
    return complete(found, workloads.get(found.workload))


def what(found: Settings) -> tuple[str, str, str, int, int | None]:
    return found.workload, found.model_size, found.dtype, found.scale, found.gbs


@pytest.mark.parametrize(
    "path",
    [
        f"log-{NEMOTRON_340B}_389757_0.out",
        f"log-account-me.{NEMOTRON_340B}_389757_0.out.gz",
        f"{NEMOTRON_340B}/{NEMOTRON_340B}_1744408121/{NEMOTRON_340B}/log.out",
        f"log-{NEMOTRON_340B.replace('nemotron4', 'nemotron-4')}.out",
    ],
)
def test_the_names_of_today(workloads: Workloads, path: str) -> None:
    found = describe(workloads, path)
    assert what(found) == ("pretrain_nemotron4", "340b", "fp8", 128, 512)
    assert (found.tp, found.pp, found.cp, found.vp, found.mbs) == (8, 4, 1, 12, 1)
    assert (found.seq_length, found.profile, found.nccl_trace, found.gpu_type) == (
        4096,
        False,
        None,
        None,
    )
    workload = workloads["pretrain_nemotron4"]
    assert model_of(found, workload) == workload.sizes["340b"].model


UNKNOWN = (None, None, None, None, 1, None)  # a dense model has no experts to split


def split(found: Settings) -> tuple[int | None, ...]:
    return found.tp, found.pp, found.cp, found.vp, found.ep, found.mbs


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("pretrain_nemotron4_340b_bf16_256", {"gpu_type": "h100"}, (8, 8, 1, 12, 1, 1)),
        ("pretrain_nemotron4_340b_bf16_256", {}, (8, None, 1, 12, 1, 1)),  # h100 and b200 differ
        ("pretrain_nemotron4_15b_bf16_16", {"gpu_type": "h100"}, (2, 1, 1, None, 1, 2)),
        ("pretrain_nemotron4_340b_bf16_96", {"gbs": 64}, UNKNOWN),  # no row has this scale
        ("pretrain_nemotron4_15b_bf16_16", {"gbs": 65}, UNKNOWN),  # nor this batch
        (
            "pretrain_nemotron4_340b_bf16_gpus256_tp8_pp8_cp1_vpNone_mbs1_gbs64",
            {},
            (8, 8, 1, None, 1, 1),
        ),
        ("pretrain_nemotron4_340b_bf16_gpus256_tp4", {}, (4, None, None, None, 1, None)),
    ],
)
def test_the_split_is_the_tables_where_all_rows_agree_and_never_invented(
    workloads: Workloads, name: str, given: dict[str, Any], expected: tuple[int | None, ...]
) -> None:
    found = describe(workloads, f"{name}.log", **given)
    assert split(found) == expected
    what_it_was = completed(found, workloads)
    assert what_it_was is not None
    assert (what_it_was.tp, what_it_was.pp, what_it_was.ep) == (found.tp, found.pp, found.ep)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        # NeMo's fp8, in other words
        (
            "log-pretrain_nemotron4_340b_fp8_ds_gpus128.out",
            ("pretrain_nemotron4", "340b", "fp8", 128, 32),
        ),
        ("log-pretrain_llama3.1_70b_fp8_256.out", ("pretrain_llama3.1", "70b", "fp8", 256, 512)),
        (
            "log-pretrain_llama31_405b_bf16_gpus512_tp8_gbs256_7.out",
            ("pretrain_llama3.1", "405b", "bf16", 512, 256),
        ),
        (
            "log-pretrain_llama31_405b-proxy_fp8_gpus64_tp8.out",
            ("pretrain_llama3.1", "405b-proxy", "fp8", 64, 64),
        ),
        (
            "log-pretraining_nemotronh_56b_fp8_gpus128.out",
            ("pretrain_nemotronh", "56b", "fp8", 128, 384),
        ),
        (
            "pretrain_nemotron4_15b_bf16_16/x/log-x_731_0.out",
            ("pretrain_nemotron4", "15b", "bf16", 16, 64),
        ),
        (
            "results/24.11.1/fp8/340b/128/log-nemo.out",
            ("pretrain_nemotron4", "340b", "fp8", 128, 32),
        ),
        (
            "log-pretrain_nemotron4_340b_fp8_gpus256.out",
            ("pretrain_nemotron4", "340b", "fp8", 256, 64),
        ),
    ],
)
def test_older_names_and_folders(
    workloads: Workloads, path: str, expected: tuple[str, str, str, int, int]
) -> None:
    assert what(describe(workloads, path)) == expected


@pytest.mark.parametrize(
    "path",
    [
        "log-x.out",
        "log-pretrain_gpt_5b_fp8_256.out",
        "log-pretrain_nemotron4_15b.out",
        "fp8/8b/x/log-.out",
        "é/.out",
    ],
)
def test_names_that_say_nothing(workloads: Workloads, path: str) -> None:
    assert describe(workloads, path) == Settings()
    assert completed(Settings(), workloads) is None


def test_profiles_and_traces(workloads: Workloads) -> None:
    name = "pretrain_llama3.1_70b_fp8_256"
    profiled = describe(workloads, f"{name}/{name}_1744408121/{name}_nsys/log-{name}.out")
    assert (profiled.profile, profiled.nccl_trace, profiled.scale) == (True, None, 256)
    configuration = completed(profiled, workloads)
    assert configuration is not None
    assert configuration.profile
    assert describe(workloads, f"log-{name}_nccltrace_7_0.out").nccl_trace
    assert describe(workloads, f"log-{name}_stragglers_7_0.out").stragglers
    assert profiled.stragglers is None


def test_a_folder_of_another_run_says_nothing(workloads: Workloads) -> None:
    found = describe(
        workloads, "pretrain_nemotron4_15b_bf16_gpus16_tp2/log-pretrain_llama3.1_8b_fp8_16.out"
    )
    # its own table's
    assert (found.workload, found.model_size, found.tp) == ("pretrain_llama3.1", "8b", 1)


def test_the_log_itself_counts_more_than_its_name_and_the_user_more_than_both(
    workloads: Workloads,
) -> None:
    samples = Samples(gbs=96, environment=Environment(world_size=64))
    name = f"log-{NEMOTRON_340B}.out"
    assert what(describe(workloads, name, samples))[3:] == (64, 96)
    found = describe(
        workloads, name, samples, scale=32, gbs=8, dtype="bf16", gpu_type="h100", seq_length=2048
    )
    assert (*what(found)[2:], found.gpu_type, found.seq_length) == ("bf16", 32, 8, "h100", 2048)
    by_hand = describe(
        workloads,
        "log-x.out",
        samples,
        workload="pretrain_nemotron4",
        model_size="15b",
        dtype="bf16",
    )
    configuration = completed(by_hand, workloads)
    assert configuration is not None
    assert (configuration.scale, configuration.gbs, configuration.num_layers) == (64, 96, 32)


def test_the_batch_follows_from_the_gpu_type_where_types_differ(workloads: Workloads) -> None:
    proxy = describe(workloads, "log-pretrain_llama3.1_405b-proxy_bf16_gpus32_tp8.out")
    assert (proxy.num_layers, proxy.gbs) == (8, 64)
    changed = describe(
        workloads, "log-pretrain_nemotronh_56b_fp8_gpus32_tp8_gbs96_steps9_layers20.out"
    )
    model = model_of(changed, workloads["pretrain_nemotronh"])
    assert model is not None
    assert model.pattern is not None
    assert (model.layers, len(model.pattern)) == (20, 20)


def steps(
    count: int = 50, *, gbs: int, time: str, tflops: str | None = None, loss: str = "12.81"
) -> str:
    flops = "" if tflops is None else f" | TFLOPS_per_GPU: {tflops}"
    return "".join(
        f"Training epoch 0, iteration {i}/49 | global_batch_size: {gbs} | reduced_train_loss:"
        f" {loss} | train_step_timing in s: {time}{flops} | consumed_samples: {gbs * (i + 1)}\n"
        for i in range(count)
    )


def result(folder: Path, workloads: Workloads, name: str, log: str, **given: str | int) -> Result:
    path = folder / name
    path.write_text(log)
    return result_of_log(path, LogReader(), workloads=workloads, overrides=Settings(**given))  # type: ignore[arg-type]


def test_all_figures_of_a_foreign_log(tmp_path: Path, workloads: Workloads) -> None:
    log = steps(gbs=256, time="2.693", tflops="571.9")
    got = result(tmp_path, workloads, "log-pretrain_nemotron4_15b_bf16_64.out", log)
    assert (got.status, got.reason, got.metrics.flops_convention) == ("Success", None, "gqa")
    assert got.metrics.mean("tokens_per_second") == pytest.approx(389371, abs=0.5)
    assert got.metrics.model_tflops_per_gpu == pytest.approx(571.85, abs=0.01)
    assert got.metrics.mfu is None
    assert got.identity.configuration is not None
    assert (got.identity.configuration.scale, got.identity.configuration.gpu_type) == (64, None)
    known = result(
        tmp_path, workloads, "log-pretrain_nemotron4_15b_bf16_64.out", log, gpu_type="h100"
    )
    assert known.metrics.mfu == pytest.approx(0.5782, abs=5e-5)
    assert (
        result_of_log(Path(got.identity.path), LogReader()).metrics.mean("tokens_per_second")
        is None
    )


def test_the_tflops_of_a_hybrid_are_omitted(
    tmp_path: Path, workloads: Workloads, wording: Wording
) -> None:
    name = "log-pretrain_nemotronh_56b_fp8_gpus128_tp8_pp1_cp1_vpNone_mbs1_gbs768.out"
    got = result(
        tmp_path, workloads, name, steps(gbs=768, time="15.858", tflops="532.39"), gpu_type="h100"
    )
    wording("parse", str(got.reason))
    assert (got.metrics.mean("tflops_per_gpu"), got.metrics.flops_convention) == (
        None,
        "hybrid-mamba2",
    )
    assert got.metrics.model_tflops_per_gpu is not None


@pytest.mark.parametrize(
    ("workload", "size", "gpus", "gbs", "constant"),
    [
        ("pretrain_nemotron4", "15b", 64, 256, 1540.0),
        ("pretrain_nemotron4", "340b", 256, 64, 2155.3),
        ("pretrain_llama3.1", "8b", 8, 128, 7590.8),
        ("pretrain_llama3.1", "70b", 64, 128, 7887.8),
    ],
)
def test_tflops_times_step_time_is_what_the_configuration_says(
    tmp_path: Path,
    workloads: Workloads,
    workload: str,
    size: str,
    gpus: int,
    gbs: int,
    constant: float,
    wording: Wording,
) -> None:
    model = workloads[workload].sizes[size].trained_model
    assert gbs * model_flops(model) / gpus / 1e12 == pytest.approx(constant, rel=1e-4)
    name = f"log-{workload}_{size}_bf16_gpus{gpus}_gbs{gbs}.out"
    good = result(
        tmp_path, workloads, name, steps(gbs=gbs, time="4.5", tflops=f"{constant / 4.5:.4}")
    )
    assert good.metrics.statistics is not None
    assert good.metrics.statistics.tflops_by_formula == pytest.approx(1, abs=1e-3)
    assert good.reason is None
    wrong = result(
        tmp_path, workloads, name, steps(gbs=gbs, time="4.5", tflops=f"{constant / 9:.4}")
    )
    wording("parse", str(wrong.reason))


def test_what_keeps_a_log_from_counting(
    tmp_path: Path, workloads: Workloads, wording: Wording
) -> None:
    network = "".join(f"node{i}:1:2 [0] NCCL INFO Using network Socket\n" for i in range(2))
    got = result(tmp_path, workloads, "log-x.out", network + steps(gbs=8, time="1.5"))
    wording("parse", "\n".join(got.metrics.invalid))
    assert got.log is not None
    assert (got.log.nodes, got.log.networks) == (2, ("Socket",))
    alone = result(
        tmp_path, workloads, "log-x.out", network.splitlines()[0] + "\n" + steps(gbs=8, time="1.5")
    )
    assert alone.metrics.invalid == ()
    one_of_many = network.splitlines()[0] + "\n" + steps(gbs=256, time="1.5")
    for name, gpu_type, several in [
        ("15b_bf16_64", "h100", True),
        ("15b_bf16_64", None, True),
        ("15b_bf16_8", "h100", False),
        ("15b_bf16_8", "gb200", True),
    ]:
        given = {} if gpu_type is None else {"gpu_type": gpu_type}
        silent = result(
            tmp_path, workloads, f"log-pretrain_nemotron4_{name}.out", one_of_many, **given
        )
        assert bool(silent.metrics.invalid) == several, (name, gpu_type)
    traced = result(
        tmp_path,
        workloads,
        "log-pretrain_nemotron4_15b_bf16_64_nccltrace.out",
        steps(gbs=8, time="1.5"),
    )
    assert traced.metrics.invalid == (TRACED,)
    detected = result(
        tmp_path,
        workloads,
        "log-pretrain_nemotron4_15b_bf16_64_stragglers.out",
        steps(gbs=8, time="1.5"),
    )
    assert detected.metrics.invalid == (DETECTED,)
    numeric = result(tmp_path, workloads, "log-x.out", steps(gbs=8, time="1.5", loss="nan"))
    assert (numeric.status, numeric.metrics.invalid) == ("Success", (LOSS_NAN,))


def test_packed_logs_are_found_and_attempts_known(tmp_path: Path, workloads: Workloads) -> None:
    log = steps(gbs=256, time="2.693").encode()
    for name in ("log-x_731_0.out", "log-x_731_1.out.gz", "log-y.out", "log-y.out.gz"):
        (tmp_path / name).write_bytes(gzip.compress(log) if name.endswith(".gz") else log)
    found = last_attempts(find_logs(tmp_path))
    assert [path.name for path in found] == ["log-x_731_1.out.gz", "log-y.out"]
    got = result_of_log(found[0], LogReader(), workloads=workloads)
    assert (got.status, got.identity.experiment, got.metrics.step_time) == (
        "Success",
        "x_731",
        2.693,
    )


def test_the_script_log_beside_it_tells_the_cause(
    tmp_path: Path, workloads: Workloads, wording: Wording
) -> None:
    (tmp_path / "sbatch_me.x_731.out").write_text(
        "pyxis: [ERROR] No such file or directory: /images/nemo.sqsh\n"
    )
    got = result(tmp_path, workloads, "log-me.x_731_0.out", "")
    wording("parse", str(got.reason))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("_load", (True, None)),
        ("_fp8current_load", (True, "current")),
        ("_loader", (False, None)),
        ("", (False, None)),
    ],
)
def test_what_a_name_says_of_loading_and_scaling(
    words: str, expected: tuple[bool, str | None], workloads: Workloads
) -> None:
    own = completed(describe(workloads, f"log-{NEMOTRON_340B}{words}.out"), workloads)
    assert own is not None
    assert (own.loads, own.fp8) == expected


@pytest.mark.parametrize(
    ("kind", "last", "loads"), [("load", 0, True), ("load", 49, False), ("save", 0, False)]
)
def test_a_load_with_one_step_is_a_run_that_loads(
    kind: Any, last: int, loads: bool, workloads: Workloads
) -> None:
    event = CheckpointEvent(kind=kind, ranks=(0,), max_seconds=4.0)
    samples = Samples(checkpoints=(event,), last=last)
    own = completed(describe(workloads, f"log-{NEMOTRON_340B}.out", samples), workloads)
    assert own is not None
    assert (own.loads, own.saves) == (loads, kind == "save")


COMPLETE = Settings(
    workload="pretrain_nemotron4",
    model_size="15b",
    dtype="bf16",
    scale=8,
    gbs=64,
    gpu_type="h100",
    nccl_trace=False,
    framework="nemo",
)


@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        ({}, ()),
        ({"workload": ""}, ("workload",)),
        ({"workload": "pretrain_unknown"}, ("workload",)),
        ({"model_size": ""}, ("workload",)),
        ({"dtype": "", "gpu_type": None}, ("dtype", "gpu_type")),
        ({"scale": 0, "gbs": None}, ("scale", "gbs")),
        ({"gpu_type": None}, ("gpu_type",)),
    ],
)
def test_the_settings_that_a_comparison_lacks(
    change: dict[str, Any], lacks: tuple[str, ...], workloads: Workloads
) -> None:
    own = replace(COMPLETE, **change)
    assert missing(own, workloads.get(own.workload)) == lacks
    # without a GPU type, it is comparable with runs of which none is known
    assert completed(own, workloads) == (own if set(lacks) <= {"gpu_type"} else None)


def test_step_times_follow_from_rates_only_if_every_step_has_one() -> None:
    described = replace(COMPLETE, seq_length=100)
    rate = Step(iteration=0, step_time=math.nan, tokens_rate=400.0)
    timed = Step(iteration=1, step_time=2.5)
    (step,) = with_times(Samples(steps=(rate,)), described).steps
    assert step.step_time == 64 * 100 / 8 / 400
    mixed = Samples(steps=(rate, timed))
    assert with_times(mixed, described) is mixed
    unknown = Samples(steps=(rate,))
    assert with_times(unknown, replace(described, scale=0)) is unknown
