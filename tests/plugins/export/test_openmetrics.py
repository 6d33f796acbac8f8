# SPDX-License-Identifier: Apache-2.0
"""The OpenMetrics text, read by prometheus-client's parsers and by promtool."""

import math
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as older_format

from llmb_export.openmetrics import render
from llmb_export.results import VERDICTS, Results, Times

Samples = dict[str, list[tuple[dict[str, str], float]]]


def parsed(text: str) -> Samples:
    """The samples of each metric by OpenMetrics, which node_exporter's older format confirms."""

    def read(families: Any) -> Samples:
        return {
            family.name: [(sample.labels, sample.value) for sample in family.samples]
            for family in families
        }

    samples = read(openmetrics(text))  # type: ignore[no-untyped-call]
    assert repr(read(older_format(text))) == repr(samples)  # nan is not equal to nan
    return samples


def value(samples: Samples, name: str, **labels: str) -> float:
    (number,) = (number for own, number in samples[name] if labels.items() <= own.items())
    return number


def test_values_have_base_units(data: Mapping[str, Any]) -> None:
    samples = parsed(render(Results(data=data)))
    assert value(samples, "llmb_step_time_seconds", experiment="good") == 2.0
    assert value(samples, "llmb_mfu_ratio", experiment="good") == 0.4
    assert value(samples, "llmb_busbw_bytes_per_second", experiment="good") == 480e9
    assert value(samples, "llmb_latency_seconds", experiment="good") == pytest.approx(12e-6)
    assert value(samples, "llmb_watts_per_gpu", experiment="good") == 650
    node = {"experiment": "good", "node": "n1"}
    assert value(samples, "llmb_node_sm_clock_median_hertz", **node) == 1755e6
    assert value(samples, "llmb_node_power_mean_watts", **node) == 640
    assert value(samples, "llmb_node_energy_joules", **node) == 1.5e6
    assert value(samples, "llmb_node_temperature_max_celsius", **node) == 71
    assert value(samples, "llmb_node_ecc_uncorrected", **node) == 0
    share = value(samples, "llmb_node_throttle_ratio", **node, reason="sw_power_cap")
    assert share == 0.25
    assert not any("in_window" in name for name in samples)


def test_exactly_one_verdict_is_1(data: Mapping[str, Any]) -> None:
    samples = parsed(render(Results(data=data)))
    for row in data["results"]:
        words = {
            labels["verdict"]: number
            for labels, number in samples["llmb_verdict"]
            if labels["experiment"] == row["experiment"].replace("\r", " ")
        }
        expected = {word: float(word == row["verdict"]) for word in VERDICTS}
        assert words == (expected if row["verdict"] else {})
    assert value(samples, "llmb_ratio", experiment="slower") == 0.81


def test_repeats_are_one_series(make_row: Callable[..., Any]) -> None:
    rows = [make_row("e", 1.0, run="a"), make_row("e", 0.5, run="b")]
    failed = make_row("e", None, run="c", status="Failed", verdict=None)
    times = {"a": Times(submitted=10.0), "b": Times(submitted=30.0), "c": Times(submitted=20.0)}
    samples = parsed(render(Results(data={"results": [*rows, failed]}, times=times)))
    assert value(samples, "llmb_step_time_seconds", experiment="e") == 3.0
    assert value(samples, "llmb_runs", experiment="e", status="Success") == 2
    assert value(samples, "llmb_runs", experiment="e", status="Failed") == 1
    assert value(samples, "llmb_run_timestamp_seconds", experiment="e") == 30


def session(name: str, day: int) -> dict[str, str]:
    return {"id": name, "created": f"2026-11-{day}T12:00:00+00:00"}


def verdicts(samples: Samples, **labels: str) -> list[tuple[str, float]]:
    """The verdicts of a series that are not 0."""
    return [
        (own["verdict"], number)
        for own, number in samples["llmb_verdict"]
        if number and labels.items() <= own.items()
    ]


def test_the_worst_verdict_of_a_series_is_1(make_row: Callable[..., Any]) -> None:
    words = ("PASS", "INVALID", "PASS")
    rows = [make_row("e", run=word, verdict=word) for word in words]
    assert verdicts(parsed(render(Results(data={"results": rows})))) == [("INVALID", 1)]
    rows.append(make_row("e", verdict="FAIL"))
    assert verdicts(parsed(render(Results(data={"results": rows})))) == [("FAIL", 1)]


def test_an_invalid_measurement_is_averaged_only_with_its_like(
    make_row: Callable[..., Any],
) -> None:
    """100 and 100 are valid, 10 and 20 are not."""

    def row(speed: float, verdict: str, ratio: float | None = None) -> Any:
        metrics = {"busbw": {"mean": speed, "unit": "GB/s"}}
        return make_row("e", ratio, verdict=verdict, metrics=metrics, headline="busbw")

    good, bad = row(100.0, "PASS", 1.0), row(10.0, "INVALID", 0.1)
    samples = parsed(render(Results(data={"results": [good, bad, good]})))
    assert value(samples, "llmb_busbw_bytes_per_second") == 100e9
    assert value(samples, "llmb_ratio") == 1.0
    assert value(samples, "llmb_runs") == 3
    samples = parsed(render(Results(data={"results": [bad, row(20.0, "INVALID")]})))
    assert value(samples, "llmb_busbw_bytes_per_second") == 15e9


def test_an_experiment_has_the_values_of_its_newest_session(make_row: Callable[..., Any]) -> None:
    rows = [
        make_row("e", 0.5, verdict="FAIL", session="2026-11-26b"),
        make_row("e", 1.0, session="2026-11-27a"),
        make_row("e", 0.7, verdict="FAIL", session="2026-11-26a"),
        make_row("other", 0.9, verdict="WARN", session="2026-11-26b"),
    ]
    sessions = [session("2026-11-27a", 27), session("2026-11-26b", 26), session("2026-11-26a", 26)]
    samples = parsed(render(Results(data={"sessions": sessions, "results": rows})))
    assert verdicts(samples) == [("PASS", 1), ("WARN", 1)]
    assert value(samples, "llmb_ratio", experiment="e") == 1.0
    assert value(samples, "llmb_runs", experiment="e") == 1
    assert value(samples, "llmb_ratio", experiment="other") == 0.9


def test_configurations_of_one_name_are_series_of_their_own(make_row: Callable[..., Any]) -> None:
    common = make_row("e")["configuration"]

    def row(run: str, ratio: float, **changes: Any) -> Any:
        return make_row("e", ratio, run=run, configuration=common | changes)

    rows = [
        row("a", 1.0, env={"FOO": "110"}, gbs=512),
        row("b", 0.9, env={"FOO": "95"}, gbs=512),
        row("c", 0.9, env={"FOO": "95"}, gbs=512),
        row("d", 0.8, env={}, gbs=1024),
        make_row("alone"),
    ]
    samples = parsed(render(Results(data={"results": rows})))
    ratios = {labels.get("variant"): number for labels, number in samples["llmb_ratio"]}
    assert ratios == {
        "FOO=110, gbs=512": 1.0,
        "FOO=95, gbs=512": pytest.approx(0.9),
        "FOO unset, gbs=1024": 0.8,
        None: 1.0,
    }
    assert value(samples, "llmb_runs", variant="FOO=95, gbs=512") == 2


def test_a_setting_is_named_once_and_one_that_is_null_is_unset(
    make_row: Callable[..., Any],
) -> None:
    common = make_row("e")["configuration"]
    changes: list[dict[str, Any]] = [
        {"vp": None, "gbs": 512, "changes": {"gbs": 512}},
        {"vp": 4, "gbs": 1024, "changes": {"gbs": 1024}},
    ]
    rows = [make_row("e", configuration=common | changed) for changed in changes]
    samples = parsed(render(Results(data={"results": rows})))
    variants = {labels["variant"] for labels, _ in samples["llmb_ratio"]}
    assert variants == {"vp unset, gbs=512", "vp=4, gbs=1024"}


def test_runs_of_an_unknown_configuration_are_one_series(make_row: Callable[..., Any]) -> None:
    rows = [make_row("e", run=run, configuration=None) for run in "ab"]
    samples = parsed(render(Results(data={"results": rows})))
    assert value(samples, "llmb_runs", experiment="e") == 2


def test_the_nodes_of_an_invalid_run_are_there(make_row: Callable[..., Any]) -> None:
    invalid = make_row("e", verdict="INVALID")
    (node,) = (node for node in invalid["nodes"] if node["telemetry"] is not None)
    invalid["nodes"] = [node | {"name": "n9"}]
    samples = parsed(render(Results(data={"results": [make_row("e"), invalid]})))
    assert value(samples, "llmb_node_power_mean_watts", node="n9") == 640


def test_rates_of_repeats_are_those_at_their_mean_step_time(make_row: Callable[..., Any]) -> None:
    """2 s and 8 s for 800 tokens: 1,600 tokens in 10 s, as the report has it, not (400 + 100) / 2."""

    def row(run: str, seconds: float) -> Any:
        means = {
            "step_time": (seconds, "s"),
            "tokens_per_second": (800 / seconds, "tokens/s"),
            "mfu": (0.8 / seconds, "fraction"),
            "tflops_per_gpu": (800 / seconds, "TFLOPS/GPU"),
            "tokens_per_joule": (8 / seconds, "tokens/J"),  # the energy grows with the time
            "busbw": (80 / seconds, "GB/s"),
        }
        metrics = {name: {"mean": mean, "unit": unit} for name, (mean, unit) in means.items()}
        return make_row("e", run=run, metrics=metrics)

    samples = parsed(render(Results(data={"results": [row("a", 2.0), row("b", 8.0)]})))
    assert value(samples, "llmb_step_time_seconds", experiment="e") == 5.0
    assert value(samples, "llmb_tokens_per_second", experiment="e") == pytest.approx(160.0)
    assert value(samples, "llmb_mfu_ratio", experiment="e") == pytest.approx(0.16)
    assert value(samples, "llmb_tflops_per_gpu", experiment="e") == pytest.approx(160.0)
    assert value(samples, "llmb_tokens_per_joule", experiment="e") == pytest.approx(1.6)
    assert value(samples, "llmb_busbw_bytes_per_second", experiment="e") == pytest.approx(25e9)
    one, none = row("a", 2.0), row("b", 8.0)
    none["metrics"]["mfu"]["mean"] = 0.0
    samples = parsed(render(Results(data={"results": [one, none]})))
    assert value(samples, "llmb_mfu_ratio", experiment="e") == pytest.approx(0.2)


def test_a_declared_metric_never_takes_the_name_of_another(make_row: Callable[..., Any]) -> None:
    metrics = {name: {"mean": 7.0, "unit": ""} for name in ("ratio", "runs", "verdict")}
    samples = parsed(render(Results(data={"results": [make_row("e", metrics=metrics)]})))
    assert value(samples, "llmb_metric_runs", experiment="e") == 7
    assert value(samples, "llmb_runs", experiment="e") == 1


def measured(make_row: Callable[..., Any], unit: str, mean: float | None = 3.0) -> Samples:
    """The samples of a metric ``speed`` in ``unit``, besides those of every run."""
    rows = [make_row("e", metrics={"speed": {"mean": mean, "unit": unit}}, nodes=[])]
    samples = parsed(render(Results(data={"results": rows})))
    return {name: values for name, values in samples.items() if name.startswith("llmb_speed")}


@pytest.mark.parametrize(
    ("unit", "name", "number"),
    [
        ("\N{MICRO SIGN}s", "seconds", 3e-6),
        ("\N{GREEK SMALL LETTER MU}s", "seconds", 3e-6),
        ("ns", "seconds", 3e-9),
        ("usec", "seconds", 3e-6),
        ("msec", "seconds", 3e-3),
        ("sec", "seconds", 3),
        ("min", "seconds", 180),
        ("h", "seconds", 10800),
        ("B", "bytes", 3),
        ("MB", "bytes", 3e6),
        ("GiB", "bytes", 3 * 2**30),
        ("TiB", "bytes", 3 * 2**40),
        ("B/s", "bytes_per_second", 3),
        ("kB/s", "bytes_per_second", 3e3),
        ("kb/s", "bits_per_second", 3e3),
        ("Gb/s", "bits_per_second", 3e9),
        ("GiB/s", "bytes_per_second", 3 * 2**30),
        ("TB/s", "bytes_per_second", 3e12),
        ("GB/s/GPU", "bytes_per_second_per_gpu", 3e9),
        ("GB/min", "bytes_per_second", 5e7),
        ("us/step", "seconds_per_step", 3e-6),
        ("TFLOP/s", "tflops", 3),
        ("PFLOPS", "tflops", 3e3),
        ("TFLOP/s/GPU", "tflops_per_gpu", 3),
        ("W", "watts", 3),
        ("kW", "watts", 3e3),
        ("mW", "watts", 3e-3),
        ("MHz", "hertz", 3e6),
        ("kWh", "joules", 1.08e7),
        ("tokens/mJ", "tokens_per_joule", 3e3),
        ("W/TFLOPS", "watts_per_tflop", 3),
        ("\N{DEGREE SIGN}C", "celsius", 3),
        ("%", "ratio", 0.03),
        ("requests/s", "requests_per_s", 3),
    ],
)
def test_units_become_base_units(
    make_row: Callable[..., Any], unit: str, name: str, number: float
) -> None:
    ((found, ((_, sample),)),) = measured(make_row, unit).items()
    assert found == f"llmb_speed_{name}"
    assert sample == pytest.approx(number)


def test_unknown_units_that_differ_have_names_that_differ(make_row: Callable[..., Any]) -> None:
    units = ["", "m", "M", "p", "P", "Mtok", "mtok", "MBps", "mbps", "GBps", "gbps", "tok/J", "tok"]
    units += ["$/h", "\N{EURO SIGN}/h", "\N{OHM SIGN}", "\N{MICRO SIGN}tok", "tok/ktok", "\udcff"]
    units += ["bytes/x", "#", "$", "IOPS", "IO"]
    names = [name for unit in units for name in measured(make_row, unit)]
    assert len(set(names)) == len(units)
    assert "llmb_speed_utok" in names
    assert "llmb_speed_iops" in names


def test_a_name_says_its_unit_once(make_row: Callable[..., Any]) -> None:
    pairs = {
        "tokens_per_second": "tokens/s",
        "tokens_per_second_per_gpu": "tokens/s/GPU",
        "model_tflops_per_gpu": "TFLOPS/GPU",
        "joules_per_step": "J/GPU",
        "tokens_per_joule": "tokens/J",
        "cost_per_million_tokens": "per million tokens",
        "requests_per_second": "requests/s",
        "bytes_read": "B",
    }
    metrics = {name: {"mean": 7.0, "unit": unit} for name, unit in pairs.items()}
    samples = parsed(render(Results(data={"results": [make_row("e", metrics=metrics)]})))
    assert {f"llmb_{name}" for name in pairs} <= set(samples)
    metrics = {"bytes_read": {"mean": 7.0, "unit": "B/s"}}
    samples = parsed(render(Results(data={"results": [make_row("e", metrics=metrics)]})))
    assert value(samples, "llmb_bytes_read_bytes_per_second") == 7


def test_numbers_that_are_none_stay_valid(make_row: Callable[..., Any]) -> None:
    for mean in (math.inf, -math.inf, math.nan):
        ((_, sample),) = measured(make_row, "us", mean)["llmb_speed_seconds"]
        assert repr(sample) == repr(mean)
    assert measured(make_row, "us", None) == {}
    rows = [
        make_row("e", metrics={name: {"mean": mean, "unit": ""} for name in ("speed", "mfu")})
        for mean in (math.inf, -math.inf)
    ]
    samples = parsed(render(Results(data={"results": rows})))
    assert math.isnan(value(samples, "llmb_speed"))


def test_no_results_are_a_valid_file() -> None:
    assert parsed(render(Results(data={"results": []}))) == {}


def test_promtool_finds_nothing_to_complain_about(data: Mapping[str, Any], tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool here: apt-get install --no-install-recommends prometheus")
    text = render(Results(data=data))
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    broken = text.replace("gauge", "gage", 1)
    done = subprocess.run(
        [promtool, "check", "metrics"], input=broken, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
