# SPDX-License-Identifier: Apache-2.0
"""Tests of comparisons of measured results, of scaling efficiency, and of estimates of
GPU-hours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from llmb.contract.job import Job, Training
from llmb.contract.model import ModelShape
from llmb.contract.settings import Settings
from llmb.contract.window import Window
from llmb.judge.compare import (
    Comparison,
    is_bad,
    judged_against,
    summary,
    to_data,
    with_measured,
    with_published,
)
from llmb.judge.judge import judge
from llmb.judge.scaling import STRONG, WEAK, columns, scaling_points
from llmb.judge.value import FAIL, INCONCLUSIVE, INVALID, NO_REFERENCE, PASS, SUSPICIOUS, WARN
from llmb.measure.facts import INCOMPLETE, LOSS_NAN, PROFILED, LogFacts
from llmb.measure.result import CANCELLED, FAILED, RUNNING, SUCCESS, UNKNOWN, Result
from llmb.plan.estimate import (
    Alike,
    TotalEstimate,
    alike,
    describe,
    estimate_job,
    limit_warnings,
    total,
)
from llmb.plan.published import Figure
from llmb_testing.results import result_of

Wording = Callable[..., None]

CONFIGURATION = Settings(
    framework="nemo",
    workload="w",
    model_size="15b",
    dtype="bf16",
    gpu_type="h100",
    scale=16,
    gbs=64,
    seq_length=4096,
    num_layers=32,
    tp=2,
    mbs=2,
)
WINDOW = Window(11, 44)


def result(
    run: str, seconds: float | None = 2.0, *, change: dict[str, Any] | None = None, **values: Any
) -> Result:
    given: dict[str, Any] = {
        "experiment": "e",
        "path": f"log-{run}.out",
        "status": SUCCESS,
        "window": WINDOW,
        "max_iteration": 49,
        "steps": 50,
        "time_mean_seconds": seconds,
        "run": run,
        "configuration": replace(CONFIGURATION, **(change or {})),
    }
    return result_of({**given, **values})


def only(ours: list[Result], theirs: list[Result]) -> Comparison:
    (row,) = with_measured(ours, theirs, "B")
    return row


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(2.0, PASS), (2.06, WARN), (2.2, FAIL), (1.8, SUSPICIOUS)]
)
def test_one_run_against_another(seconds: float, verdict: str) -> None:
    row = only([result("a", seconds)], [result("b")])
    assert (row.verdict, row.repeats) == (verdict, 1)
    assert row.ratio == pytest.approx(2 / seconds)
    assert row.reference is not None
    assert (row.reference.release, row.reference.window, row.reference.source) == (
        "B",
        "11-44",
        "b",
    )
    assert (row.runs, row.step_time_s, row.same_window, row.differences) == (
        ("a",),
        seconds,
        True,
        (),
    )
    assert is_bad(row) == (verdict == FAIL)


def test_repeats_on_both_sides_are_pooled(wording: Wording) -> None:
    row = only([result("a", 2.0), result("b", 2.02)], [result("c", 2.0), result("d", 2.04)])
    assert row.verdict == PASS
    assert row.repeats == 2
    wording("compare", str(row.verdict_reason))
    assert row.reference is not None
    assert row.reference.source == "c, d"
    assert row.reference.step_time_s == pytest.approx(2.02)


@pytest.mark.parametrize("ours", [1, 3])
def test_a_single_run_beside_repeats_has_no_spread_of_its_own(ours: int, wording: Wording) -> None:
    several = [result(f"a{number}", 2.0 + number / 100) for number in range(3)]
    row = only(several, [result("b", 2.0)]) if ours == 3 else only([result("b", 2.0)], several)
    assert row.ratio_interval is not None
    wording("compare", str(row.verdict_reason))


def test_verdicts_of_results_are_those_of_their_rows() -> None:
    ours = [
        result("a", 2.2),
        result("b", 2.22),
        result("c", 2.0, change={"scale": 32}),
        result("d", None),
    ]
    theirs = [result("e"), result("f", 2.01)]
    rows = with_measured(ours, theirs, "B")
    judged = judged_against(ours, theirs, "B")
    assert [one.identity.run for one in judged] == ["a", "b", "c", "d"]
    of = {run: row for row in rows for run in row.runs}
    for one in judged:
        row = of[str(one.identity.run)]
        verdict = one.verdict
        assert (verdict.word, verdict.pooled_ratio, verdict.ratio_interval) == (
            row.verdict,
            row.ratio,
            row.ratio_interval,
        )
        assert (verdict.reference, verdict.repeats) == (row.reference, row.repeats)
    assert [one.verdict.ratio for one in judged] == [
        pytest.approx(2.005 / 2.2),
        pytest.approx(2.005 / 2.22),
        None,
        None,
    ]


def test_both_sides_of_a_line_have_the_same_mean() -> None:
    runs = [result("a", 0.582), result("b", 3.233)]
    row = only(runs, runs)
    assert row.reference is not None
    assert row.step_time_s == row.reference.step_time_s == pytest.approx((0.582 + 3.233) / 2)
    row = only(runs, [result("c", 1.1), result("d", 1.3)])
    assert row.reference is not None
    assert row.ratio == pytest.approx(row.reference.value / (row.step_time_s or 0))
    assert row.ratio_interval is not None
    assert row.ratio is not None
    assert 0 < row.ratio_interval[0] < row.ratio < row.ratio_interval[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"status": RUNNING, "reason": "at step 3 of 50"},
        {"status": FAILED, "reason": "GPU out of memory"},
        {"invalid": ("ran over TCP",)},
        {"status": RUNNING, "change": {"dtype": "fp8"}},
    ],
)
def test_why_the_other_side_has_nothing(changes: dict[str, Any], wording: Wording) -> None:
    row = only([result("a")], [result("b", **changes)])
    assert row.verdict == NO_REFERENCE
    wording("compare", str(row.verdict_reason))


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"dtype": "fp8"}, "nothing for bf16, only for fp8"),
        ({"gpu_type": "h200"}, "nothing for h100, only for h200"),
        ({"gbs": 512}, "nothing for global batch 64, only for global batch 512"),
    ],
)
def test_what_differs_is_not_compared(
    change: dict[str, Any], missing: str, wording: Wording
) -> None:
    row = only([result("a")], [result("b", change=change)])
    assert (row.verdict, row.ratio) == (NO_REFERENCE, None)
    wording("compare", str(row.verdict_reason))


def test_other_settings_are_compared_and_named(wording: Wording) -> None:
    row = only([result("a")], [result("b", change={"tp": 4, "image": "i:2", "env": {"A": "1"}})])
    assert row.verdict == PASS
    wording("compare", "\n".join(row.differences))


def test_what_only_one_of_them_does_is_described(wording: Wording) -> None:
    saving, plain = result("a", change={"saves": True}), result("b")
    wording("compare", "\n".join(only([saving], [plain]).differences))
    wording("compare", "\n".join(only([plain], [saving]).differences))


def test_a_split_that_a_log_does_not_say_is_no_difference() -> None:
    unknown = result("a", change={"tp": None, "mbs": None})
    assert only([unknown], [result("b", change={"vp": 12})]).differences == ()
    (difference,) = only([result("a")], [result("b", change={"vp": 12})]).differences
    assert difference.split()[0] == "vp"


def test_what_the_logs_say_differently_is_named(wording: Wording) -> None:
    ours, theirs = (
        LogFacts(nccl_version="2.26.3", networks=("IB",)),
        LogFacts(nccl_version="2.21.5", networks=("IB",)),
    )
    row = only([replace(result("a"), log=ours)], [replace(result("b"), log=theirs)])
    wording("compare", "\n".join(row.differences))
    here = LogFacts(
        drivers=("570.86.15",), gpu_models=("H100",), sm_clock_mhz=1755.0, power_limit_w=700.0
    )
    there = replace(here, drivers=("560.35.03", "570.86.15"), sm_clock_mhz=1980.0)
    row = only([replace(result("a"), log=here)], [replace(result("b"), log=there)])
    wording("compare", "\n".join(row.differences))
    assert (
        only([replace(result("a"), log=ours)], [replace(result("b"), log=LogFacts())]).differences
        == ()
    )


@pytest.mark.parametrize(("ours", "theirs"), [(True, False), (False, True), (False, False)])
def test_a_side_whose_log_is_gone_differs_in_no_condition(ours: bool, theirs: bool) -> None:
    facts = LogFacts(nccl_version="2.26.3", networks=("IB",))
    a, b = (
        replace(result(run), log=facts if has_log else None)
        for run, has_log in (("a", ours), ("b", theirs))
    )
    assert only([a], [b]).differences == ()


@pytest.mark.parametrize(
    ("hosts", "other_hosts", "nodes", "differ"),
    [
        (("n1", "n2"), ("n3", "n2"), "n[2-3]", True),
        (("n1", "n2"), ("n2.cluster", "N1.cluster"), "n[1-2]", False),
        (("n1",), (), None, False),
    ],
)
def test_both_sides_name_their_nodes(
    hosts: tuple[str, ...], other_hosts: tuple[str, ...], nodes: str | None, differ: bool
) -> None:
    ours, theirs = (
        [
            replace(result(host or "none"), log=LogFacts(hosts=(host,) if host else ()))
            for host in names or ("",)
        ]
        for names in (hosts, other_hosts)
    )
    row = only(ours, theirs)
    assert row.nodelist == ("n[1-2]" if len(hosts) > 1 else "n1")
    assert (row.reference_nodelist, row.is_on_other_nodes) == (nodes, differ)


def test_the_most_like_settings_are_taken_in_whatever_order() -> None:
    theirs = [result("far", 9.0, change={"tp": 4, "mbs": 1}), result("near", 2.0, change={"tp": 4})]
    for others in (theirs, theirs[::-1]):
        row = only([result("a")], others)
        assert row.reference is not None
        assert row.reference.source == "near"


def test_of_equal_settings_those_with_the_same_window_are_taken() -> None:
    theirs = [result("other", 9.0, window=Window(20, 44)), result("same", 2.0)]
    for others in (theirs, theirs[::-1]):
        row = only([result("a")], others)
        assert row.reference is not None
        assert (row.reference.source, row.same_window) == ("same", True)


@pytest.mark.parametrize(("count", "more"), [(2, ""), (3, "; and 1 more"), (4, "; and 2 more")])
def test_two_runs_without_a_figure_are_named(count: int, more: str) -> None:
    failed = [result(f"f{n}", None, status=FAILED, reason="broken") for n in range(count)]
    reason = only([result("a")], failed).verdict_reason or ""
    named = "; ".join(f"f{n} failed (broken): choose a run that succeeded" for n in range(2))
    assert reason == named + more


def test_two_settings_equally_like_are_not_guessed_between(wording: Wording) -> None:
    row = only([result("a")], [result("b", change={"tp": 4}), result("c", change={"tp": 8})])
    assert row.verdict == NO_REFERENCE
    wording("compare", str(row.verdict_reason))


@pytest.mark.parametrize(
    ("status", "state", "failed"),
    [
        (UNKNOWN, "COMPLETED", False),  # a log of another format
        (UNKNOWN, "RUNNING", False),  # its scheduler does not answer
        (UNKNOWN, "LOST", True),
        (FAILED, "COMPLETED", True),
        (CANCELLED, "CANCELLED", True),
        (RUNNING, "RUNNING", False),
    ],
)
def test_a_row_fails_where_its_result_does(status: str, state: str, failed: bool) -> None:
    one = result("a", None, status=status, state=state)
    assert one.is_failure == failed
    assert [
        is_bad(row) for row in [*with_measured([one], [result("b")], "B"), *with_published([one])]
    ] == [failed] * 2


def test_another_window_is_marked(wording: Wording) -> None:
    row = only([result("a")], [result("b", window=Window(35, 44))])
    assert (row.verdict, row.same_window) == (PASS, False)
    wording("compare", str(row.verdict_reason))


def test_what_does_not_count_is_not_taken_on_either_side(wording: Wording) -> None:
    bad = [
        result("n", invalid=(LOSS_NAN,)),
        result("p", change={"profile": True}),
        result("f", None, status=FAILED, reason="broken"),
        result("r", None, status=RUNNING, reason="at step 3"),
    ]
    rows = with_measured(bad, [result("b")], "B")
    assert [(row.verdict, row.status, row.verdict_reason) for row in rows] == [
        (INVALID, SUCCESS, LOSS_NAN),
        (INVALID, SUCCESS, PROFILED),
        (None, FAILED, "broken"),
        (None, RUNNING, "at step 3"),
    ]
    assert [is_bad(row) for row in rows] == [True, True, True, False]
    assert summary(rows) == {"Failed": 1, "INVALID": 2, "Running": 1}
    row = only([result("a")], bad)
    assert row.verdict == NO_REFERENCE
    wording("compare", str(row.verdict_reason))


def test_a_log_that_nobody_knows() -> None:
    assert only([result("a", configuration=None)], [result("b")]).verdict == NO_REFERENCE


FIGURE = Figure(
    release="25.05",
    source="a table",
    window=WINDOW,
    steps=50,
    workload="w",
    model_size="15b",
    dtype="bf16",
    gpu_type="h100",
    scale=16,
    gbs=64,
    seq_length=4096,
    num_layers=32,
    value=2.0,
)


def test_rows_against_what_was_published(wording: Wording) -> None:
    ours = [
        result("a", 2.0),
        result("b", 2.01),
        result("c", change={"dtype": "fp8"}),
        result("f", None, status=FAILED, invalid=(INCOMPLETE,)),
    ]
    first, second, third = with_published(judge(ours, [FIGURE]))
    assert (first.runs, first.verdict, first.repeats) == (("a", "b"), PASS, 2)
    assert first.ratio == pytest.approx(2 / 2.005)
    assert second.verdict == NO_REFERENCE
    wording("compare", str(second.verdict_reason))
    assert (third.status, third.verdict) == (FAILED, INVALID)


def test_weak_and_strong_scaling() -> None:
    ours = [
        result("a", 2.0),
        result("a2", 2.2),
        result("b", 2.4, change={"scale": 32, "gbs": 128}),
        result("c", 1.2, change={"scale": 32}),
        result("d", 0.7, change={"scale": 64}),
        result("x", 9.0, change={"scale": 128, "profile": True}),
        result("y", None, status=FAILED),
        result("z", change={"dtype": "fp8"}),
    ]
    points = scaling_points(ours)
    assert [(p.kind, p.configuration.scale, p.n, round(p.relative, 4)) for p in points] == [
        (STRONG, 16, 2, 1.0),
        (STRONG, 32, 1, round(2.1 / 1.2 / 2, 4)),
        (STRONG, 64, 1, round(2.1 / 0.7 / 4, 4)),
        (WEAK, 16, 2, 1.0),
        (WEAK, 32, 1, round(2.1 / 2.4, 4)),
    ]
    assert points[0].value == pytest.approx(4096 * 64 / 2.1 / 16)
    assert scaling_points(ours[::-1]) == points


def test_scales_of_other_settings_are_no_series() -> None:
    other = {"tp": 4, "env": {"NCCL_ALGO": "Ring"}}
    ours = [
        result("a", 2.0),
        result("b", 2.4, change={"scale": 32, "gbs": 128}),
        result("c", 3.0, change=other),
        result("d", 3.3, change={"scale": 32, "gbs": 128, **other}),
        result("e", 9.0, change={"scale": 64, "gbs": 256, "image": "mine"}),
    ]
    points = scaling_points(ours)
    assert [(p.configuration.scale, p.n, p.settings, round(p.relative, 4)) for p in points] == [
        (16, 1, "tp 2", 1.0),
        (32, 1, "tp 2", round(2.0 / 2.4, 4)),
        (16, 1, "tp 4, NCCL_ALGO=Ring", 1.0),
        (32, 1, "tp 4, NCCL_ALGO=Ring", round(3.0 / 3.3, 4)),
    ]
    assert [column.key for column in columns(points, "table")][-1] == "settings"
    assert [column.key for column in columns(points[:0], "table")][-1] == "efficiency"


def test_one_node_goes_with_nodes_of_every_width() -> None:
    def on(name: str, scale: int, per_node: int, seconds: float) -> Result:
        return result(
            name, seconds, change={"scale": scale, "gbs": 4 * scale, "gpus_per_node": per_node}
        )

    points = scaling_points(
        [on("a", 4, 4, 2.0), on("b", 8, 8, 2.1), on("c", 16, 8, 2.2), on("d", 16, 4, 2.5)]
    )
    weak = [p for p in points if p.kind == WEAK]
    four, eight = sorted({p.settings for p in weak})
    assert ("4" in four, "8" in eight) == (True, True)
    found = [(p.configuration.scale, p.settings, p.step_time_s) for p in weak]
    assert found == [
        (4, four, 2.0),
        (16, four, 2.5),
        (4, eight, 2.0),
        (8, eight, 2.1),
        (16, eight, 2.2),
    ]
    points = scaling_points([on("a", 1, 1, 2.0), on("b", 2, 2, 2.1)])
    assert [p.configuration.scale for p in points] == [1, 2]


def test_one_scale_has_no_efficiency() -> None:
    assert scaling_points([result("a"), result("b")]) == []


MODEL = ModelShape(
    architecture="nemotron",
    layers=32,
    hidden=8,
    ffn=8,
    heads=2,
    kv_groups=2,
    vocab=8,
    seq_length=4096,
)
JOB = Job(
    workload="w",
    model_size="15b",
    dtype="bf16",
    gpu_type="h100",
    scale=16,
    repeat=1,
    profile=False,
    env={},
    max_steps=50,
    nodes=2,
    gpus_per_node=8,
    time_limit=1200,
    image=None,
    experiment_name="e",
    training=Training(
        tp=2,
        pp=1,
        cp=1,
        vp=None,
        ep=1,
        dp=8,
        mbs=2,
        gbs=64,
        ga=4,
        seq_length=4096,
        num_layers=32,
        model=MODEL,
        learning_rate=3e-4,
    ),
)


def estimate(
    jobs: Sequence[Job], past: Mapping[Alike, float], figures: Callable[[str], Sequence[Figure]]
) -> TotalEstimate:
    return total([estimate_job(job, job.scale, past, figures) for job in jobs])


def test_gpu_hours_by_past_runs_then_published_times_then_limits(wording: Wording) -> None:
    other = replace(JOB, experiment_name="o")
    unknown = replace(JOB, experiment_name="u", dtype="fp8")
    found = estimate([JOB, other, unknown], {alike(JOB): 360.0}, lambda key: [FIGURE])
    assert (found.past, found.published, found.limit) == (1, 1, 1)
    assert found.gpu_hours == pytest.approx(16 * (360 + 50 * 2.0 + 1200) / 3600)
    assert found.most == pytest.approx(3 * 16 * 1200 / 3600)
    wording("compare", str(describe(found, "GPU")))


def test_an_estimate_above_the_limit_is_not_cut_off(wording: Wording) -> None:
    """The run would be: a person must see it before the nodes are used."""
    long = replace(JOB, max_steps=1_000)
    for job, past, hours in ((long, {}, 16 * 2_000 / 3600), (JOB, {alike(JOB): 7200.0}, 32)):
        found = estimate([job], past, lambda key: [FIGURE])
        assert found.gpu_hours == pytest.approx(hours)
        assert found.most < found.gpu_hours
        wording("compare", str(describe(found, "GPU")))


def test_an_estimate_near_the_limit_is_a_warning(wording: Wording) -> None:
    """Once for all repeats; a job without an estimate has none."""
    half = replace(JOB, experiment_name="half", max_steps=300)
    tight = replace(JOB, experiment_name="tight", max_steps=500)
    unknown = replace(JOB, experiment_name="unknown", dtype="fp8")
    jobs = [half, tight, replace(tight, repeat=2), unknown, JOB]
    past = {alike(JOB): 2000.0}
    estimates = [estimate_job(job, job.scale, past, lambda key: [FIGURE]) for job in jobs]
    first, second = limit_warnings(jobs, estimates)
    assert first.startswith("tight takes about 17 minutes by the figure of")
    assert second.startswith(f"{JOB.experiment_name} takes about 33 minutes by past runs")
    wording("compare", first)


def test_other_gpus_and_other_steps_take_another_time() -> None:
    past = {alike(JOB): 1.0}
    for changed in (
        replace(JOB, gpu_type="h200"),
        replace(JOB, max_steps=100),
        replace(JOB, experiment_name="o"),
    ):
        assert estimate([changed], past, lambda key: []).past == 0


def test_nothing_known_is_reported_as_at_most(wording: Wording) -> None:
    wording("compare", str(describe(estimate([JOB], {}, lambda key: []), "CPU")))


def test_little_is_not_rounded_to_nothing(wording: Wording) -> None:
    job = replace(JOB, scale=1, time_limit=90)
    wording("compare", str(describe(estimate([job], {alike(job): 3.0}, lambda key: []), "CPU")))


@pytest.mark.parametrize(
    ("seconds", "deviation", "verdict"),
    [
        (2.2, 0.2, INCONCLUSIVE),  # 9 % slower, and single steps differ by 10 %
        (1.85, 0.2, INCONCLUSIVE),  # as much faster
        (2.06, 0.2, INCONCLUSIVE),
        (2.0, 0.2, INCONCLUSIVE),  # nobody can say that it is not 5 % slower
        (2.2, 0.01, FAIL),
        (1.8, 0.01, SUSPICIOUS),
        (2.06, 0.005, WARN),
        (2.0, 0.005, PASS),
        (3.0, 0.2, FAIL),
    ],
)
def test_one_run_by_one_run_under_noise(
    seconds: float, deviation: float, verdict: str, wording: Wording
) -> None:
    ours = result("a", seconds, time_std_dev_seconds=deviation)
    theirs = result("b", 2.0, time_std_dev_seconds=deviation)
    row = only([ours], [theirs])
    assert (row.verdict, row.repeats) == (verdict, 1)
    if verdict == INCONCLUSIVE:
        wording("compare", str(row.verdict_reason))
        assert only([theirs], [ours]).verdict == INCONCLUSIVE


P = [result(f"p{n}", seconds) for n, seconds in enumerate((1.0, 1.02, 1.04))]
Q = [result(f"q{n}", seconds) for n, seconds in enumerate((1.062, 1.064, 1.066))]
SWEPT = [result(f"z{n}", 1.064, change={"env": {"Z": str(n)}}) for n in range(6)]


def test_single_runs_of_a_sweep_do_not_change_how_much_their_baseline_deviates() -> None:
    """Each was compared with the same three runs, which then counted seven times."""
    alone = only(Q, P)
    for runs in ([*Q, *SWEPT], [*SWEPT, *reversed(Q)]):
        rows = with_measured(runs, P, "B")
        (row,) = (row for row in rows if len(row.runs) == 3)
        assert row.ratio_interval == alone.ratio_interval
        assert row.verdict_reason == alone.verdict_reason
    other_way = only(P, [*Q, *SWEPT])
    assert alone.ratio_interval is not None
    assert other_way.ratio_interval is not None
    low, high = alone.ratio_interval
    assert other_way.ratio_interval == pytest.approx((1 / high, 1 / low), rel=1e-9)


def test_a_baseline_of_several_configurations_without_its_own_counts_by_itself() -> None:
    swept = [
        result(f"z{n}{m}", 1.06 + m / 100, change={"env": {"Z": str(n)}})
        for n in range(3)
        for m in range(2)
    ]
    rows = with_measured(swept, P, "B")
    assert {row.repeats for row in rows} == {2}
    assert "known from 4 configurations" in (rows[0].verdict_reason or "")
    again = with_measured([*reversed(swept)], P, "B")
    assert [row.ratio_interval for row in again] == [row.ratio_interval for row in reversed(rows)]
    two_nights = [replace(run, identity=replace(run.identity, session="n")) for run in Q]
    assert len(with_measured([*Q, *two_nights], P, "B")) == 2


def test_the_ratio_of_a_metric_is_that_of_all_runs_of_the_row() -> None:
    row = only(Q, P)
    assert row.metrics["step_time"].ratio == row.ratio == row.metrics["step_time"].pooled_ratio
    (data,) = to_data([row], "B")["comparisons"]
    assert data["metrics"]["step_time"]["ratio"] == data["ratio"]
