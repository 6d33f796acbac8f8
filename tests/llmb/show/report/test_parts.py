# SPDX-License-Identifier: Apache-2.0
"""Tests of what a report says: its order, its headline, what differs, its conditions. No page is
written.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

import pytest

from llmb.contract.job import Job
from llmb.contract.metrics import Bounds
from llmb.contract.record import RunRecord
from llmb.core.node_lists import fold
from llmb.judge.explain import Subject, explain
from llmb.judge.value import BAD, SUSPICIOUS
from llmb.measure.facts import VerdictCause
from llmb.measure.result import MetricVerdict, Verdict
from llmb.show.report.conditions import conditions_of, shown_variables
from llmb.show.report.entries import ReportEntry, entries_of, families_of
from llmb.show.report.explanations import explanations
from llmb.show.report.glance import GlanceItem, PageValues, glance, headline, one_line
from llmb.show.report.markdown import to_markdown
from llmb.show.report.page import to_html
from llmb.show.report.svg.scaling import scaling_picture
from llmb.show.report.value import MEANINGS, ORDER, Report, Run

Wording = Callable[..., None]

Gather = Callable[..., Report]


class Night(Protocol):
    """The fixture of conftest.py."""

    def job(self, workload: str, dtype: str, scale: int, **how: Any) -> Job: ...
    def run(self, job: Job, log: str | None, state: str = ..., **how: Any) -> RunRecord: ...
    def measured(
        self, seconds: float, workload: str, dtype: str, scale: int, **how: Any
    ) -> None: ...
    def digest(self, reference: str, digest: str) -> None: ...


def entries(gather: Gather, night: Night) -> list[ReportEntry]:
    return entries_of(gather(night).runs)


def items_of(report: Report, explained: int = 0) -> list[GlanceItem]:
    found = entries_of(report.runs)
    return glance(report, found, found[:explained], PageValues.of(found, report.runs))


PASSES = Verdict(word="PASS", ratio=1.0, pooled_ratio=1.0, repeats=1)


def shown(report: Report) -> str:
    return headline(entries_of(report.runs)).sentence


# All others occur in such a night. INCONCLUSIVE does not, since its configurations have repeats.
ABSENT = ("Unknown", "Pending", "INCONCLUSIVE")


def test_the_worst_is_first_and_every_run_once(morning: Report) -> None:
    found = entries_of(morning.runs)
    words = [entry.word for entry in found]
    expected = [word for word in ORDER if word not in ABSENT]
    assert list(dict.fromkeys(words)) == expected  # all others occur in such a night, in this order
    assert sorted(run.id for entry in found for run in entry.runs) == sorted(
        run.id for run in morning.runs
    )
    for word in ("FAIL", "WARN", "PASS"):
        ratios = [entry.ratio for entry in found if entry.word == word and entry.ratio is not None]
        assert ratios == sorted(ratios)
    assert entries_of(reversed(morning.runs))[0].runs[0].id == found[0].runs[0].id


def test_repeats_are_one_entry_with_a_common_ratio(
    empty_night: Night, gather: Gather, wording: Wording
) -> None:
    empty_night.measured(2.75, "nemotron4_15b", "bf16", 16, repeats=3)
    (entry,) = entries(gather, empty_night)
    assert entry.ratio is not None
    assert (entry.result.verdict.repeats, len(entry.runs), entry.note) == (3, 3, "")
    wording("report", str(entry.label))
    assert entry.rate == pytest.approx(4096 * 64 / 16 / entry.value.mean if entry.value else 0)
    assert entry.mfu is not None
    assert 0.5 < entry.mfu < 0.7


def test_entries_of_one_title_say_what_differs(empty_night: Night, gather: Gather) -> None:
    empty_night.measured(2.75, "nemotron4_15b", "bf16", 16)
    empty_night.measured(2.75, "nemotron4_15b", "bf16", 16, how={"NCCL_ALGO": "Ring"})
    empty_night.measured(2.75, "nemotron4_15b", "bf16", 16, how={"params": {"mbs": 1}})
    empty_night.measured(2.75, "nemotron4_15b", "bf16", 32)
    notes = {entry.note for entry in entries(gather, empty_night) if entry.job.scale == 16}
    assert notes == {"mbs 2", "mbs 2, NCCL_ALGO=Ring", "mbs 1"}
    assert [entry.note for entry in entries(gather, empty_night) if entry.job.scale == 32] == [""]


def test_the_headline_of_a_night(night: Night, gather: Gather, wording: Wording) -> None:
    configurations = entries(gather, night)
    found = headline(configurations)
    wording("report", found.sentence)
    wording("report", "\n".join(found.details))
    assert dict(found.tally) == Counter(entry.word for entry in configurations)
    assert [word for word, _ in found.tally] == [word for word in ORDER if word not in ABSENT]


@pytest.mark.parametrize("times", [[], [2.75], [2.75, 2.66], [2.83], [3.1]])
def test_the_headline_says_it_as_it_is(
    times: list[float], empty_night: Night, gather: Gather, wording: Wording
) -> None:
    for seconds, scale in zip(times, (16, 32), strict=False):
        empty_night.measured(seconds, "nemotron4_15b", "bf16", scale)
    wording("report", str(shown(gather(empty_night))))


def test_the_headline_of_runs_that_are_too_fast_says_so(
    empty_night: Night, gather: Gather, wording: Wording
) -> None:
    empty_night.measured(2.0, "nemotron4_15b", "bf16", 16, repeats=2)  # 2.746 s are published
    report = gather(empty_night)
    (entry,) = entries_of(report.runs)
    assert entry.word == SUSPICIOUS
    wording("report", headline([entry]).sentence)
    assert "implausibl" in headline([entry]).sentence
    assert "implausibl" in one_line(report, [entry])


def test_repeats_that_are_slow_count_as_the_one_configuration_that_the_headline_names(
    empty_night: Night, gather: Gather
) -> None:
    for scale in (16, 32):
        empty_night.measured(3.4, "nemotron4_15b", "bf16", scale, repeats=2)
    report = gather(empty_night)
    assert shown(report).startswith("2 of 2 compared configurations")
    page = " ".join(to_html(report).split())
    assert (
        'Configurations:</li> <li><span class="mark fail"></span><b>2</b> FAIL</li> </ul>' in page
    )
    assert "configurations: 2 FAIL</title>" in page


def test_the_headline_without_anything_to_compare_with(
    empty_night: Night, gather: Gather, wording: Wording
) -> None:
    empty_night.measured(3.0, "nemotron4_15b", "bf16", 96)
    wording("report", str(shown(gather(empty_night))))


def test_the_list_at_the_top_has_each_configuration_with_its_cause(
    morning: Report, wording: Wording
) -> None:
    items = items_of(morning, 2)
    assert [item.word for item in items] == sorted((item.word for item in items), key=ORDER.index)
    assert sum(item.total for item in items) == len(entries_of(morning.runs))
    assert {item.word for item in items if not item.is_bad} == {"Running", "PASS", "NO_REFERENCE"}
    assert items[0].lines[0].anchor == "why-1"
    (clocked,) = (item for item in items if "1395 MHz" in item.why)
    assert (clocked.word, [line.value for line in clocked.lines]) == ("FAIL", ["88.8 %"])
    # two configurations, one cause
    (memory,) = (item for item in items if "out of memory" in item.why)
    assert (memory.word, memory.total, {line.anchor for line in memory.lines}) == (
        "Failed",
        2,
        {"failure-1"},
    )
    assert "nvidia-smi" in memory.fix
    (passed,) = (item for item in items if item.word == "PASS")
    assert passed.total == sum(entry.word == "PASS" for entry in entries_of(morning.runs))
    assert passed.why == ""
    wording(
        "report",
        "\n".join(
            f"{item.word} {'; '.join(line.what for line in item.lines)}: {item.why}"
            for item in items
        ),
    )


def test_one_cause_of_several_configurations_is_there_once(
    empty_night: Night, gather: Gather
) -> None:
    empty_night.measured(2.75, "nemotron4_15b", "bf16", 16)
    empty_night.measured(3.1, "nemotron4_15b", "bf16", 32, clock=1395)
    empty_night.measured(3.2, "nemotron4_15b", "bf16", 64, clock=1395)
    slow, good = items_of(gather(empty_night))
    assert (slow.word, slow.total, good.word) == ("FAIL", 2, "PASS")
    assert all(
        line.what in ("nemotron4 15b bf16, 32 GPUs", "nemotron4 15b bf16, 64 GPUs")
        for line in slow.lines
    )
    (entry,) = [entry for entry in entries(gather, empty_night) if entry.job.scale == 64]
    assert [cause.usual for cause in entry.causes] == ["1980 MHz"]


def test_what_holds_for_several_entries_is_explained_once(morning: Report) -> None:
    asking = [
        entry for entry in entries_of(morning.runs) if entry.word in ("FAIL", "WARN", "SUSPICIOUS")
    ]
    found = explanations(asking, {})
    shared = {(own.name, own.text): own.entries for own in found.shared}
    assert len(shared[("SM clock", "1980 MHz under load")]) == len(asking) - 1
    texts = {("", text) for one in found.entries for text in one.differs} | {
        f for one in found.entries for f in one.facts
    }
    assert not texts & set(shared)


def test_why_a_figure_is_not_the_published_one(morning: Report, wording: Wording) -> None:
    asking = [entry for entry in entries_of(morning.runs) if entry.word in ("FAIL", "SUSPICIOUS")]
    found = explanations(asking, morning.digests)
    assert len(found.entries) == len(asking)
    slow, clocked, fast = found.entries[0], found.entries[1], found.entries[-1]
    wording("report", str(slow.differs))
    assert not any("window" in sentence for sentence in fast.differs)
    wording("report", str(fast.differs))
    wording("report", slow.notes[0])
    wording("report", "\n".join(f"{own.name}: {own.text}" for own in found.shared))
    common = dict(found.common)
    assert common["image"] == "nvcr.io/nvidia/nemo:25.04.01 sha256:" + "4f1c0de2" * 8
    assert (common["NCCL"], common["network"], common["driver"]) == (
        "2.26.3+cuda12.9",
        "IB",
        "570.86.15",
    )
    assert "1395" in dict(clocked.facts)["SM clock"]
    assert "SM clock" not in dict(slow.facts)  # that of most: shared
    wording("report", "\n".join(f"{name}: {value}" for name, value in fast.facts))
    assert found.missing == ()


def test_what_no_log_tells_is_reported(
    empty_night: Night, gather: Gather, wording: Wording
) -> None:
    lines = (f"iteration {i}/49 | train_step_timing in s: 3.1\n" for i in range(50))
    empty_night.run(empty_night.job("nemotron4_15b", "bf16", 16), "".join(lines))
    report = gather(empty_night)
    found = explanations(entries_of(report.runs), {})
    wording("report", str(dict(found.common)["driver"]))
    (sentence,) = found.missing
    assert "NCCL_DEBUG=INFO" in sentence
    wording("report", str(dict(conditions_of(report).common)["missing in all logs"]))


def test_the_ratio_over_the_published_window(empty_night: Night, gather: Gather) -> None:
    empty_night.measured(2.7, "nemotron4_15b", "bf16", 128, slow={49: 1.5}, noise=0.0, jitter=0.0)
    (entry,) = entries(gather, empty_night)
    sentence = "Over the window of the published figure (the last iteration) the ratio is 0.659."
    assert explanations([entry], {}).entries[0].notes == (sentence,)


def test_slow_steps_that_make_the_difference(
    empty_night: Night, gather: Gather, wording: Wording
) -> None:
    slow = dict.fromkeys((20, 27, 33), 2.0)
    empty_night.measured(2.76, "nemotron4_15b", "bf16", 16, slow=slow, noise=0.001, jitter=0.0)
    (entry,) = entries(gather, empty_night)
    assert entry.word == "FAIL"
    (sentence,) = explanations([entry], {}).entries[0].notes
    wording("report", sentence)


def test_explain_and_the_report_find_the_same_differences(morning: Report) -> None:
    for entry in entries_of(morning.runs):
        run = entry.runs[0]
        if run.figure is None or entry.ratio is None:
            continue
        found = explain(
            Subject(
                result=run.result,
                job=run.job,
                figure=run.figure,
                peak_tflops=run.peak_tflops,
                row=run.row,
            )
        )
        (why,) = explanations([entry], {}).entries
        assert all(sentence in found for sentence in why.differs)


def test_what_is_the_same_for_all_runs_and_what_is_not(
    night: Night, gather: Gather, wording: Wording
) -> None:
    found = conditions_of(gather(night))
    common = dict(found.common)
    wording("report", str(common["cluster"]))
    first, last = ("2025-11-20 20:00", "2025-11-21 02:00")
    assert common["submitted"] == f"{first} to {last}"
    assert common["variables"] == "NCCL_DEBUG=WARN"
    assert common["window"] == "11-44 of 50"
    assert "network" not in common
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    bf16 = [row for row in rows if row["configuration"] == "nemotron4 15b bf16"]
    assert {tuple(row["GPUs"].split(", ")) for row in bf16} == {
        ("16",),
        ("32", "64", "128", "256"),
        ("96",),
    }
    assert {row["own variables"] for row in bf16} == {"", "NCCL_ALGO=Ring"}
    assert {row["network"] for row in rows} == {"", "IB", "Socket"}
    assert len(found.rows) == len(set(found.rows))


def test_a_variable_of_one_run_is_not_reported_as_common(
    empty_night: Night, gather: Gather
) -> None:
    empty_night.measured(2.75, "nemotron4_15b", "bf16", 16)
    empty_night.measured(2.75, "nemotron4_15b", "bf16", 16, how={"NCCL_ALGO": "Ring"})
    found = conditions_of(gather(empty_night))
    assert "own variables" in found.columns
    assert "NCCL_ALGO" not in json.dumps(found.common)


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({"B": "2", "A": "1"}, ["A=1", "B=2"]),
        ({"HF_TOKEN": "hf_abc", "MY_SECRET": "x", "API_KEY": "x"}, []),
        ({"HTTPS_PROXY": "http://me:pass@proxy:3128"}, ["HTTPS_PROXY=http://<secret>@proxy:3128"]),
    ],
)
def test_no_secret_is_shown(variables: Mapping[str, str], shown: list[str]) -> None:
    assert shown_variables(variables) == shown


def test_scaling_has_the_published_figures_of_the_same_batch(
    morning: Report, wording: Wording
) -> None:
    bf16 = next(family for family in families_of(morning) if family.label == "nemotron4 15b bf16")
    assert (bf16.kind, bf16.gpu_type) == ("weak", "h100")
    wording("report", str(bf16.batch))
    assert [one.scale for one in bf16.published] == [16, 32, 64, 128, 256, 512]
    first = bf16.published[0]
    assert first.release == "25.05"
    assert first.value == pytest.approx(4096 * 64 / 2.746 / 16)
    assert len(bf16.values) == sum(point.n for point in bf16.points)
    old = next(
        family
        for family in families_of(replace(morning, release="25.04"))
        if family.label == bf16.label
    )
    assert old.published[0].release == "25.04"
    assert old.published[0].value == pytest.approx(4096 * 64 / 2.66 / 16)


def test_every_word_has_a_meaning() -> None:
    assert {
        "FAIL",
        "WARN",
        "PASS",
        "SUSPICIOUS",
        "INCONCLUSIVE",
        "NO_REFERENCE",
        "Failed",
        "Running",
    } <= set(MEANINGS)
    assert set(MEANINGS) >= BAD


def test_what_failed_for_several_reasons_names_all(
    empty_night: Night, gather: Gather, wording: Wording
) -> None:
    job = empty_night.job("llama3.1_8b", "bf16", 8)
    for log in (
        "torch.OutOfMemoryError: CUDA out of memory\n",
        "Segmentation fault\n",
        "Bus error\n",
        "odd\n",
    ):
        empty_night.run(job, log, "FAILED", exit_code=1)
    (entry,) = entries(gather, empty_night)
    wording("report", str(entry.reason))
    (item,) = items_of(gather(empty_night))
    assert item.word == "Failed"
    wording("report", f"{item.lines[0].what}: {item.why}")


def test_cancelled_runs_are_counted_and_do_not_head_the_page(
    empty_night: Night, gather: Gather, wording: Wording
) -> None:
    job = empty_night.job("llama3.1_8b", "bf16", 8)
    for _ in range(5):
        empty_night.run(job, None, "CANCELLED", reason="by 1000")
    empty_night.run(job, "Segmentation fault\n", "FAILED", exit_code=139)
    report = gather(empty_night)
    found = headline(entries_of(report.runs))
    wording("report", "\n".join([found.sentence, *found.details]))
    assert found.tally == (("Failed", 1), ("Cancelled", 1))
    assert [item.word for item in items_of(report)] == ["Failed", "Cancelled"]


def test_a_slow_configuration_has_its_cost_and_its_nodes(
    empty_night: Night, gather: Gather
) -> None:
    empty_night.measured(2.66, "nemotron4_15b", "bf16", 16)
    empty_night.measured(4.95, "nemotron4_340b", "bf16", 512, clock=1395)
    report = gather(empty_night)
    slow, good = entries_of(report.runs)
    assert slow.ratio is not None
    assert slow.missing_gpus == round(512 * (1 - slow.ratio)) > 0
    assert (good.missing_gpus, good.cost) == (0, "")
    (line,) = items_of(report)[0].lines
    nodes = fold(slow.hosts)
    assert nodes
    assert line.cost == f"costs {slow.missing_gpus} of 512 GPUs, on {nodes}"
    text = one_line(report, [slow, good])
    assert "\n" not in text
    for part in ("aurora", "1 of 2 compared", slow.title, line.value, line.cost, "1395 MHz"):
        assert part in text
    assert text in to_markdown(report)


def with_verdicts(report: Report, *verdicts: Verdict) -> Report:
    """Return the report with the verdict of each run replaced, in their order."""
    runs = [
        replace(run, result=replace(run.result, verdict=verdict))
        for run, verdict in zip(report.runs, verdicts, strict=True)
    ]
    return replace(report, runs=tuple(runs))


def verdict_of(word: str, ratio: float, **words: str) -> Verdict:
    """A verdict whose ``words`` are those of its metrics."""
    metrics = {
        name: MetricVerdict(word=its_word, reason=f"the {name}", repeats=1)
        for name, its_word in words.items()
    }
    return Verdict(
        word=word,
        reason="; ".join(verdict.reason for verdict in metrics.values() if verdict.word != "PASS"),
        ratio=ratio,
        pooled_ratio=ratio,
        repeats=1,
        metrics=metrics,
    )


def test_the_headline_counts_each_way_of_being_bad(
    empty_night: Night, gather: Gather, wording: Wording
) -> None:
    """One speed, two losses and one memory are bad; two speeds and one memory are too good."""
    for scale in (16, 32, 64, 128, 256, 512):
        empty_night.measured(3.4, "nemotron4_15b", "bf16", scale)
    report = with_verdicts(
        gather(empty_night),
        verdict_of("FAIL", 0.9, step_time="FAIL", loss="FAIL", peak_memory="PASS"),
        verdict_of("FAIL", 1.02, step_time="PASS", loss="FAIL", peak_memory="SUSPICIOUS"),
        verdict_of("FAIL", 0.97, step_time="WARN", loss="PASS", peak_memory="FAIL"),
        verdict_of("SUSPICIOUS", 1.0, step_time="PASS", peak_memory="SUSPICIOUS"),
        verdict_of("SUSPICIOUS", 1.1, step_time="SUSPICIOUS"),
        verdict_of("SUSPICIOUS", 1.2, step_time="SUSPICIOUS"),
    )
    found = entries_of(report.runs)
    wording("report", headline(found).sentence)
    wording("report", headline(found).details[-1])
    assert headline(found).details[0].endswith("(90.0 % to 120.0 %).")
    suspicious = [entry for entry in found if entry.word == SUSPICIOUS]
    wording("report", headline(suspicious).sentence)
    assert len(headline(suspicious).details) == 1
    costs = {entry.job.scale: entry.missing_gpus for entry in found}
    assert costs == {16: 2, 32: 0, 64: 0, 128: 0, 256: 0, 512: 0}


def test_a_speed_above_the_reference_and_below_its_limit_costs_nothing(
    empty_night: Night, gather: Gather
) -> None:
    empty_night.measured(2.7, "nemotron4_15b", "bf16", 512)
    report = with_verdicts(gather(empty_night), verdict_of("FAIL", 1.02, step_time="FAIL"))
    (entry,) = entries_of(report.runs)
    assert (entry.missing_gpus, entry.cost) == (0, "")


def test_an_item_names_fault_and_cause(empty_night: Night, gather: Gather) -> None:
    empty_night.measured(2.7, "nemotron4_15b", "bf16", 16)
    cause = VerdictCause(condition="", value="", usual="", runs=(), text="its clock")
    verdict = verdict_of("FAIL", 0.9, step_time="FAIL", loss="FAIL")
    (item,) = items_of(with_verdicts(gather(empty_night), replace(verdict, causes=(cause,))))
    assert "he loss" in item.why
    assert "its clock" in item.why


def test_configurations_with_one_fault_are_one_item(empty_night: Night, gather: Gather) -> None:
    for scale in (16, 32, 64):
        empty_night.measured(2.7, "nemotron4_15b", "bf16", scale)
    faults = ("loss", "loss", "peak_memory")
    verdicts = [verdict_of("FAIL", 1.0, step_time="PASS", **{fault: "FAIL"}) for fault in faults]
    report = with_verdicts(gather(empty_night), *verdicts)
    assert sorted(item.total for item in items_of(report)) == [1, 2]


def test_a_ratio_is_on_its_side_of_the_limits_of_its_metric(
    empty_night: Night, gather: Gather
) -> None:
    empty_night.measured(2.7, "nemotron4_15b", "bf16", 16)
    report = gather(empty_night)
    (run,) = report.runs
    metrics, reference = run.result.metrics, run.result.verdict.reference
    bounds = Bounds(fail_below=0.9, warn_below=0.94)
    measured = {name: replace(value, bounds=bounds) for name, value in metrics.measured.items()}
    verdict = replace(verdict_of("FAIL", 0.89996, step_time="FAIL"), reference=reference)
    result = replace(run.result, metrics=replace(metrics, measured=measured), verdict=verdict)
    (entry,) = entries_of([replace(run, result=result)])
    assert entry.ratio_text == "0.89996"


def test_a_wrong_loss_of_a_fast_run_has_no_share_of_the_speed(
    empty_night: Night, gather: Gather
) -> None:
    empty_night.measured(2.7, "nemotron4_15b", "bf16", 16)
    report = gather(empty_night)
    report = with_verdicts(report, verdict_of("FAIL", 1.02, step_time="PASS", loss="FAIL"))
    (entry,) = entries_of(report.runs)
    pasted = one_line(report, [entry])
    assert pasted.endswith(f"Worst: {entry.title}: the loss.")
    (item,) = items_of(report)
    assert "clock" not in item.why
    slow = verdict_of("FAIL", 0.94996, step_time="FAIL", loss="FAIL", peak_memory="FAIL")
    report = with_verdicts(report, slow)
    pasted = one_line(report, entries_of(report.runs))
    assert "94.996 % of" in pasted
    assert "the loss" in pasted
    assert "the peak_memory" not in pasted


def of_another_session(run: Run, session: str, days: int) -> Run:
    """Return the run as of a session so many days later."""
    identity = replace(run.result.identity, session=session)
    created = run.created + days * 86400
    return replace(run, created=created, result=replace(run.result, identity=identity))


def test_rows_of_several_sessions_are_no_further_configurations(
    empty_night: Night, gather: Gather
) -> None:
    """A night is a row of its own; the line to paste has the days of the runs, not of today."""
    empty_night.measured(3.4, "nemotron4_15b", "bf16", 16)
    report = gather(empty_night)
    (run,) = report.runs
    both = replace(report, runs=(run, of_another_session(run, "later", 40)))
    assert shown(both) == "2 of 2 compared rows of 1 configuration are worse than published."
    first, last = (
        datetime.fromtimestamp(one.created, report.made.tzinfo).date() for one in both.runs
    )
    line = one_line(both, entries_of(both.runs))
    assert f", {first} to {last}: 2 of 2" in line
    assert f", {first}: 1 of 1" in one_line(report, entries_of(report.runs))
    empty = replace(report, runs=())
    assert f", {report.made:%Y-%m-%d}: There are no runs" in one_line(empty, [])
    fast = [replace(one, result=replace(one.result, verdict=PASSES)) for one in both.runs]
    assert shown(replace(report, runs=tuple(fast))).startswith("All 2 compared rows of 1 conf")


def test_points_of_the_scaling_chart_that_do_not_pass_are_marked(
    empty_night: Night, gather: Gather
) -> None:
    empty_night.measured(2.66, "nemotron4_15b", "bf16", 16)
    empty_night.measured(3.3, "nemotron4_15b", "bf16", 64)
    report = gather(empty_night)
    (family,) = families_of(report)
    assert family.words == {16: "PASS", 64: "FAIL"}
    picture = scaling_picture("one", family)
    assert picture.count("marked") == picture.count(">FAIL<") == 1
    assert "measured fail marked" in picture


def test_conditions_and_formulas_are_behind_details(empty_night: Night, gather: Gather) -> None:
    empty_night.measured(2.66, "nemotron4_15b", "bf16", 16)
    page = to_html(gather(empty_night))
    for name in ("conditions", "words"):
        section = page.partition(f'<section id="{name}"')[2].partition("</section>")[0]
        assert "<details>" in section.partition("<h2")[0]
        assert section.rstrip().endswith("</details>")
