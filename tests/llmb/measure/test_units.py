# SPDX-License-Identifier: Apache-2.0
"""Tests of values without a key in a plugin's logs, and of the units that follow values."""

from pathlib import Path

import pytest

from llmb.contract.formats import ParseSpec
from llmb.contract.samples import Step
from llmb.contract.spec_checks import check_convertible, check_declared
from llmb.core.units import factor_between, is_time, unit_after
from llmb.errors import KeyFaultError
from llmb.measure.log_lines import UnitMismatchError
from llmb.measure.log_reader import read_log

TOOK = r"took (?P<value>[\d.]+) (?P<unit>\w+)"
BUSBW = r"busbw (?P<value>\S+) (?P<unit>\S+)"


def spec(**more: object) -> ParseSpec:
    """The format of ``step 12 took 0.53 s, busbw 480.2 GB/s``, of a workload with the metric busbw
    in GB/s.
    """
    given = {
        "needle": " took ",
        "iteration": r"step (?P<i>\d{1,9})",
        "patterns": {"step_time": TOOK, "busbw": BUSBW},
    }
    return ParseSpec(**{**given, "metrics": ("busbw",), "metric_units": {"busbw": "GB/s"}, **more})  # type: ignore[arg-type]


def steps(tmp_path: Path, text: str, read: ParseSpec) -> tuple[Step, ...]:
    log = tmp_path / "log.out"
    log.write_text(text)
    return read_log(log, read).steps


def test_values_without_a_key(tmp_path: Path) -> None:
    text = (
        "step 12 took 0.53 s, busbw 480.2 GB/s.\n[rank0] step 13 took 0.54 s, busbw 479 GB/s, ok\n"
    )
    found = steps(tmp_path, text, spec())
    assert [(one.iteration, one.step_time, dict(one.values)) for one in found] == [
        (12, 0.53, {"busbw": 480.2}),
        (13, 0.54, {"busbw": 479}),
    ]
    assert spec().keys == {}  # those of NeMo are not looked for


@pytest.mark.parametrize("end", range(len("step 12 took 0.53 s, busbw 480.25 GB/s")))
def test_a_line_that_is_cut_has_no_half_number_and_no_wrong_unit(end: int, tmp_path: Path) -> None:
    text = "step 12 took 0.53 s, busbw 480.25 GB/s"
    for one in steps(tmp_path, text[:end], spec(patterns={"step_time": TOOK, "busbw": BUSBW})):
        assert one.step_time in (0.53,) or one.step_time != one.step_time
        assert one.values.get("busbw", 480.25) == 480.25


@pytest.mark.parametrize(
    ("line", "name", "logged"),
    [
        ("step 1 took 530 ms, busbw 480.2 GB/s", "step_time", "ms"),
        ("step 1 took 0.53 s, busbw 480.2 MB/s", "busbw", "MB/s"),
        # the pattern says that it is a unit
        ("step 1 took 0.53 s, busbw 480.2 blocks", "busbw", "blocks"),
    ],
)
def test_another_unit_in_the_log_is_an_error_that_names_both(
    line: str, name: str, logged: str, tmp_path: Path
) -> None:
    with pytest.raises(UnitMismatchError) as caught:
        steps(tmp_path, line + "\n", spec(source="acme:acme"))
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "unit-mismatch",
        name,
        logged,
    )
    for word in ("acme:acme", "llmb_parse", logged, {"step_time": "s", "busbw": "GB/s"}[name]):
        assert word in str(caught.value)


def keyed(**more: object) -> ParseSpec:
    keys = {"step_time": "time", "busbw": "busbw"}
    return spec(needle="time", patterns={}, keys=keys, **more)


@pytest.mark.parametrize(
    ("line", "units", "expected"),
    [
        ("step 3 time=530 ms", {"step_time": "ms"}, 0.53),
        ("step 3 time=530ms", {"step_time": 1e-3}, 0.53),
        ("step 3 time=530", {"step_time": "ms"}, 0.53),
        ("step 3 time=0.5 sec", {}, 0.5),
        ("step 3 time=0.5 s=4", {}, 0.5),  # a key
        ("step 3 time=0.5 min: 4", {}, 0.5),
        ("step 3 time=0.5 min 0.4 max 0.7", {}, 0.5),
        ("step 3 time=0.5 min, 0.6 avg, 0.7 max", {}, 0.5),
        ("step 3 time=0.5 min", {}, None),
        ("step 3 time=0.5 min", {"step_time": "min"}, 30.0),
        ("step 3 time=0.5 done", {}, 0.5),
        ("step 3 time=530 ms", {}, None),
        ("step 3 time=530 [ms]", {}, None),
        ("step 3 time=530(ms) lr=3", {}, None),
        ("step 3 time=0.5 (s)", {}, 0.5),
        ("step 3 time=0.5 (min 0.4)", {}, 0.5),
        ("step 3 time=0.5 [done]", {}, 0.5),
        ("step 3 time=530 us", {"step_time": "ms"}, None),
        ("step 3 time=530 us", {"step_time": 1e-3}, None),
    ],
)
def test_the_unit_after_a_number(
    line: str, units: dict[str, float | str], expected: float | None, tmp_path: Path
) -> None:
    if expected is None:
        with pytest.raises(UnitMismatchError):
            steps(tmp_path, line + "\n", keyed(units=units))
    else:
        (one,) = steps(tmp_path, line + "\n", keyed(units=units))
        assert one.step_time == pytest.approx(expected, rel=1e-12)


def test_lines_of_llmb_step_are_checked_too(tmp_path: Path) -> None:
    read = ParseSpec(metrics=("busbw",), metric_units={"busbw": "GB/s"})
    assert steps(tmp_path, "llmb step 0/0 busbw=480.2 GB/s\n", read)[0].values == {"busbw": 480.2}
    with pytest.raises(UnitMismatchError):
        steps(tmp_path, "llmb step 0/0 busbw=480200 MB/s\n", read)


@pytest.mark.parametrize(
    ("more", "code", "path"),
    [
        ({"patterns": {"busbw": "busbw ("}}, "pattern-invalid", ("patterns", "busbw")),
        ({"patterns": {"busbw": r"busbw (\d+)"}}, "group-missing", ("patterns", "busbw")),
        (
            {"patterns": {"busbw": r"busbw (?P<vale>\d+)(?P<value>)"}},
            "group-unknown",
            ("patterns", "busbw"),
        ),
        ({"patterns": {"busbw": r"(?P<value>\d*)"}}, "pattern-empty", ("patterns", "busbw")),
        ({"patterns": {"bus bw": BUSBW}}, "name-invalid", ("patterns", "bus bw")),
        ({"keys": {"busbw": "busbw"}}, "key-duplicate", ("patterns", "busbw")),
        ({"units": {"busbw": "GBps"}}, "unit-unknown", ("units", "busbw")),
        ({"units": {"latency": "ms"}}, "key-unknown", ("units", "latency")),
        ({"units": {"busbw": 0.0}}, "unit-invalid", ("units", "busbw")),
    ],
)
def test_what_can_never_be_right_is_refused(
    more: dict[str, object], code: str, path: tuple[str, ...]
) -> None:
    with pytest.raises(KeyFaultError) as caught:
        spec(**more)
    assert (caught.value.code, caught.value.path) == (code, path)


def test_a_unit_of_another_kind_and_a_metric_that_is_not_declared_are_refused() -> None:
    with pytest.raises(KeyFaultError) as caught:
        check_convertible({"busbw": "ms"}, {"busbw": "GB/s"})
    assert (caught.value.code, caught.value.path) == ("unit-mismatch", ("units", "busbw"))
    with pytest.raises(KeyFaultError) as caught:
        check_declared([], ["busbw"], ["buswb"])
    assert (caught.value.code, caught.value.path) == ("key-unknown", ("patterns", "buswb"))


def test_units() -> None:
    """SI prefixes are powers of ten, and Ki, Mi, Gi those of two (IEC 80000-13)."""
    assert factor_between("ms", "s") == pytest.approx(1e-3)
    assert factor_between("MiB/s", "MB/s") == pytest.approx(1.048576)
    assert factor_between("Gbit/s", "Gbps") == 1.0
    assert factor_between("GFLOP/s", "TFLOPS") == pytest.approx(1e-3)
    assert factor_between("GB", "GB/s") is None
    assert (is_time("us"), is_time("GB/s")) == (True, False)
    assert [
        unit_after(text, 3)
        for text in (b"1.2 GB/s", b"1.2ms,", b"1.2 s_total", b"1.2 blocks", b"1.2")
    ] == [
        "GB/s",
        "ms",
        None,
        None,
        None,
    ]
