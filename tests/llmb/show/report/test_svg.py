# SPDX-License-Identifier: Apache-2.0
"""Tests of the pictures of a report: where things are drawn, what is shown of them, and that
nothing escapes.
"""

import math
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st

from llmb.contract.samples import Step
from llmb.contract.window import Window
from llmb.show.report.svg.draw import (
    Axis,
    around,
    dot,
    element,
    few,
    in_digits,
    label,
    picture,
    round_step,
    spaced,
    text,
    thinned,
)
from llmb.show.report.svg.steps import HEIGHT, WIDTH, steps_picture
from llmb.show.report.svg.strips import ratio_axis, ratio_strip, shares, spread_axis, spread_strip

HOSTILE = "</title><script>alert('\"&')</script>\x1b[31m\udc80"
TIMES = st.lists(
    st.floats(1e-3, 1e4) | st.sampled_from([math.nan, math.inf]), min_size=1, max_size=120
)


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def of_class(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [found for found in root.iter() if kind in found.get("class", "").split()]


def number(found: ElementTree.Element, name: str) -> float:
    value = found.get(name)
    assert value is not None
    return float(value)


def steps(times: list[float]) -> list[Step]:
    return [Step(iteration=i, step_time=time) for i, time in enumerate(times)]


def test_an_axis_puts_values_in_their_places() -> None:
    axis = Axis(low=10, high=20, start=100, end=0)
    assert [axis.at(value) for value in (10, 15, 20, 5, 99)] == [100, 50, 0, 100, 0]
    log = Axis(low=8, high=128, start=0, end=80, log=True)
    assert [round(log.at(value), 6) for value in (8, 16, 32, 64, 128)] == [0, 20, 40, 60, 80]


@pytest.mark.parametrize(
    ("low", "high", "most", "words"),
    [
        (0, 10, 5, ["0", "2", "4", "6", "8", "10"]),
        (2.71, 2.79, 4, ["2.72", "2.74", "2.76", "2.78"]),
        (5400, 6300, 4, ["5,500", "6,000"]),
        (0.9, 1.06, 4, ["0.90", "0.95", "1.00", "1.05"]),
        (7.0, 7.0001, 1, ["7.0000", "7.0001"]),
    ],
)
def test_ticks_are_round_and_have_the_digits_that_they_need(
    low: float, high: float, most: int, words: list[str]
) -> None:
    assert in_digits(Axis(low=low, high=high, start=0, end=1).ticks(most)) == words


@given(st.floats(1e-6, 1e9))
def test_a_round_step_is_the_next_one(least: float) -> None:
    step = round_step(least)
    assert least * (1 - 1e-9) <= step <= 2.5 * least
    assert round(step / 10 ** math.floor(math.log10(step) + 1e-9), 6) in (1, 2, 5, 10)


def test_noise_does_not_look_like_a_mountain() -> None:
    low, high = around([2.75, 2.751, 2.752], 0.04)
    assert high - low == pytest.approx(0.08 * 2.751)
    low, high = around([2.0, 4.0], 0.04)
    assert [low, high] == pytest.approx([1.85, 4.15])


def test_labels_keep_their_distance() -> None:
    assert spaced([(10, "11"), (90, "44"), (0, "0"), (100, "49"), (50, "x")], 20) == [
        (10, "11"),
        (90, "44"),
        (50, "x"),
    ]


def test_the_window_is_shaded_and_the_mean_lies_in_it() -> None:
    root = drawn(steps_picture("s", "run", steps([2.0] * 50), Window(11, 44), (), 2.0, 50))
    (window,), (mean,) = of_class(root, "window"), of_class(root, "mean")
    left, right = number(window, "x"), number(window, "x") + number(window, "width")
    (line,) = of_class(root, "line")
    places = [float(pair.split(",")[0]) for pair in line.get("points", "").split()]
    assert [i for i, place in enumerate(places) if left <= place <= right] == list(range(11, 45))
    assert [number(mean, "x1"), number(mean, "x2")] == pytest.approx([left, right])
    assert [found.text for found in of_class(root, "label")][-3:] == ["11", "44", "0"]


def test_outliers_are_ringed_and_long_first_steps_are_at_the_edge(
    wording: Callable[..., None],
) -> None:
    times = [30.0, 2.4, 2.4] + [2.0] * 47
    times[20] = 3.5
    root = drawn(steps_picture("s", "run", steps(times), Window(11, 44), (20,), 2.04, 50))
    (outlier,), (beyond,) = of_class(root, "outlier"), of_class(root, "beyond")
    (seen,) = (found.text or "" for found in root if found.tag.endswith("desc"))
    wording("report", f"{outlier[0].text}\n{beyond[0].text}\n{seen}")


def test_a_run_that_stopped_early_shows_how_much_is_missing() -> None:
    root = drawn(steps_picture("s", "run", steps([2.0] * 20), Window(11, 44), planned=50))
    (line,) = of_class(root, "line")
    last = float(line.get("points", "").split()[-1].split(",")[0])
    assert last < WIDTH / 2
    assert of_class(root, "mean") == []


def test_a_picture_of_nothing_is_no_picture() -> None:
    assert steps_picture("s", "run", steps([math.nan, math.inf]), Window(0, 1)) == ""
    assert steps_picture("s", "run", [], None) == ""


@given(TIMES, st.sets(st.integers(0, 119)), st.integers(0, 100), st.integers(0, 60))
def test_whatever_was_logged_stays_within_the_picture(
    times: list[float], outliers: set[int], first: int, more: int
) -> None:
    svg = steps_picture("s", "run", steps(times), Window(first, first + more), outliers, 1.0, 50)
    if not svg:
        assert all(not math.isfinite(time) for time in times)
        return
    root = drawn(svg)
    assert "nan" not in svg
    assert "inf" not in svg
    for found in root.iter():
        assert all(
            0 <= number(found, name) <= WIDTH for name in ("x1", "x2", "cx") if found.get(name)
        )
        assert all(
            0 <= number(found, name) <= HEIGHT for name in ("y1", "y2", "cy") if found.get(name)
        )
        for pair in found.get("points", "").split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT


@given(st.lists(st.floats(1, 9), min_size=300, max_size=4000))
def test_long_runs_are_thinned_but_keep_their_peaks(times: list[float]) -> None:
    points = list(enumerate(times))
    kept = thinned(points, 240)
    assert len(kept) <= 242
    assert set(kept) <= set(points)
    assert {min(times), max(times)} <= {time for _, time in kept}
    assert kept == sorted(kept)


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=200))
def test_few_of_many_dots_keep_both_ends(values: list[float]) -> None:
    kept = few(values, 40)
    assert len(kept) == min(len(values), 40)
    assert set(kept) <= set(values)
    assert (kept[0], kept[-1]) == (min(values), max(values))
    assert kept == sorted(kept)


def test_a_picture_stays_small_whatever_the_run() -> None:
    times = [2.0 + i % 7 for i in range(20_000)]
    outliers = [i for i in range(20_000) if i % 7 == 6]
    svg = steps_picture("s", "run", steps(times), Window(4400, 17600), outliers, 5.0, 20_000)
    assert len(svg) < 16_000
    assert len(of_class(drawn(svg), "outlier")) == 40
    axis = ratio_axis([1.0])
    assert (
        len(ratio_strip("r", axis, "pass", 1.0, [1 + i / 1e6 for i in range(5000)], None, "it"))
        < 6_000
    )


def test_ratios_share_an_axis_and_those_far_away_are_at_its_edge(
    wording: Callable[..., None],
) -> None:
    axis = ratio_axis([0.4, 0.93, 1.02])
    assert [axis.low, axis.high] == pytest.approx([0.8, 1.1])
    near = drawn(ratio_strip("r", axis, "fail", 0.93, [0.92, 0.94], (0.91, 0.95), "it"))
    (point,) = of_class(near, "point")
    assert number(point, "cx") == pytest.approx(axis.at(0.93), abs=0.01)
    assert len(of_class(near, "repeat")) == 2
    assert len(of_class(near, "interval")) == 3
    (far,) = of_class(drawn(ratio_strip("r", axis, "fail", 0.4, [0.4], None, "it")), "point")
    assert far.tag == "polygon"
    wording("report", str(far[0].text))


def test_repeats_lie_around_their_mean() -> None:
    axis = spread_axis([-0.03, 0.03, 0.001])
    root = drawn(spread_strip("s", axis, [-0.03, 0.03]))
    left, right = (number(found, "cx") for found in of_class(root, "measured"))
    assert left + right == pytest.approx(2 * axis.at(0))
    assert spread_axis([0.0001]).high == pytest.approx(0.0105)


def test_shares_fill_the_bar(wording: Callable[..., None]) -> None:
    root = drawn(shares("t", [("FAIL", "fail", 1), ("PASS", "pass", 3)]))
    boxes = of_class(root, "share")
    assert [box.get("width") for box in boxes] == ["25.000%", "75.000%"]
    assert [box.get("x") for box in boxes] == ["0.000%", "25.000%"]
    wording("report", str(root[0].text))


def test_texts_are_escaped_everywhere() -> None:
    svg = picture("k", HOSTILE, HOSTILE, 1, 1, label(HOSTILE, 0, 0), dot(HOSTILE, 0, 0, 1, HOSTILE))
    root = drawn(svg)
    assert "<script" not in svg
    assert "\x1b" not in svg
    assert [found.tag for found in root.iter()] == [
        "svg",
        "title",
        "desc",
        "text",
        "circle",
        "title",
    ]
    assert root[0].text == "</title><script>alert('\"&')</script>\\x1b[31m\\udc80"
    assert text("a<b") == "a&lt;b"
    assert element("g", {"class": '"><script>'}) == '<g class="&quot;&gt;&lt;script&gt;"/>'
