# SPDX-License-Identifier: Apache-2.0
"""Plans and their judging: what passes, what never does, which node is named, plans as files."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml

from llmb import api
from llmb.errors import InputFaults, PreflightError
from llmb_accept import acceptance as store, certificate, running
from llmb_accept.acceptance import FOLDER, Acceptance
from llmb_accept.commands import _carry_out, _continued, command_to_continue
from llmb_accept.judge import (
    ACCEPTED,
    FAILED,
    NOT_ACCEPTED,
    NOT_RUN,
    OPEN,
    PASSED,
    AcceptanceRun,
    Assessment,
    Evidence,
    Group,
    Needed,
    NodeWord,
    PhaseOutcome,
    assess,
    peers_limit,
    placed,
    problem_of,
    shown,
    split,
)
from llmb_accept.plan import PlanRow, find_plan, read_plan, shipped
from llmb_accept.running import RowCost, compared, lost_nodes

PLAN = """\
title: A test
phases:
  - {name: health, check: quick}
  - {name: node, nodes: 1, jobs: [{job: microbench_gemm, dtype: bf16}]}
  - {name: pairs, nodes: 2, jobs: [{job: microbench_all_reduce}]}
  - {name: training, attempts: 2, jobs: [{job: pretrain_llama3.1_8b, scale: [8, 16, 32], ratio_above: 0.95}]}
"""
REFUSED = "Slurm would refuse a job, as it is down"
NODES = ("n1", "n2", "n3", "n4", "n5")


def an_acceptance(plan: str = PLAN, nodes: Group = NODES, **changes: Any) -> Acceptance:
    values: dict[str, Any] = {
        "name": "test",
        "plan_text": plan,
        "plan_file": "test.yaml",
        "cluster": "kit",
        "gpu_type": "h100",
        "gpus_per_node": 8,
        "nodes": nodes,
        "names_nodes": True,
        "created": "2026-11-26T12:00:00+00:00",
    }
    return Acceptance(**(values | changes))


def a_row(
    value: float = 100.0, *, ratio: float | None = None, status: str = "Success", **changes: Any
) -> dict[str, Any]:
    """An object of `llmb-run results`, with the keys that judging reads."""
    metric = {"mean": value, "unit": "GB/s", "better": "higher", "judged": True, "bounds": None}
    row: dict[str, Any] = {
        "status": status,
        "reason": "it broke" if status == "Failed" else None,
        "invalid": [],
        "headline": "busbw",
        "metrics": {"busbw": {**metric, "ratio": ratio}} if status == "Success" else {},
    }
    return row | changes


#: Says the result of a run, from its phase, its nodes and its round.
Machine = Callable[[str, Group, int], Mapping[str, Any]]


def sound(phase: str, _group: Group, _round: int) -> Mapping[str, Any]:
    return a_row(ratio=0.97 if phase == "training" else None)


def carried_out(
    acceptance: Acceptance,
    machine: Machine = sound,
    words: Mapping[str, str] | None = None,
    down: Mapping[str, str] | None = None,
) -> tuple[Assessment, Evidence, list[Needed]]:
    """Run a plan on a machine: whatever is needed is run, until nothing is.

    ``down``: the nodes that the scheduler refuses, each from a session on.
    """
    evidence, asked = Evidence(), list[Needed]()
    refused: dict[str, str] = {}
    for _ in range(20):
        assessment = assess(acceptance, evidence)
        if assessment.is_complete:
            return assessment, evidence, asked
        for needed in assessment.needed:
            refused |= {n: REFUSED for n, first in (down or {}).items() if first == needed.session}
            if lost := {n: REFUSED for group in needed.groups for n in group if n in refused}:
                acceptance = acceptance.with_lost(needed.phase, lost)
                break
            asked.append(needed)
            for group in needed.groups:
                evidence = after(acceptance, evidence, needed, group, machine, words or {})
    raise AssertionError("the plan never ends")


def after(
    acceptance: Acceptance,
    evidence: Evidence,
    needed: Needed,
    group: Group,
    machine: Machine,
    words: Mapping[str, str],
) -> Evidence:
    _, phase, *rest = needed.session.split(".")
    row = machine(phase, group, int(rest[-1])) if rest else a_row()
    run = AcceptanceRun(
        id=f"run{len(evidence.runs)}",
        session=needed.session,
        nodelist=acceptance.nodelist(group),
        llmb_version="0.1.0",
        row=row,
    )
    checks = dict(evidence.checks)
    if needed.check is not None:
        checks[run.id] = {node: NodeWord(word=words.get(node, "OK")) for node in group}
    return Evidence(runs=(*evidence.runs, run), checks=checks)


def statuses(assessment: Assessment) -> dict[str, str]:
    return {phase.name: phase.status for phase in assessment.phases}


def test_a_sound_cluster_is_accepted_and_each_phase_has_its_jobs() -> None:
    assessment, _, asked = carried_out(an_acceptance())
    assert assessment.answer == ACCEPTED
    assert set(statuses(assessment).values()) == {PASSED}
    assert [(needed.session, needed.groups, needed.gpus) for needed in asked] == [
        ("test.health", (NODES,), 40),
        ("test.node.microbench_gemm-bf16.1", tuple((node,) for node in NODES), 8),
        # The last pair takes a node of the first, so that each node is in one.
        ("test.pairs.microbench_all_reduce.1", (("n1", "n2"), ("n3", "n4"), ("n5", "n1")), 16),
        # The largest scale that fits, on as many nodes as it needs.
        ("test.training.pretrain_llama3_1_8b.1", (("n1", "n2", "n3", "n4"),), 32),
    ]


def test_a_missing_run_is_never_a_pass() -> None:
    acceptance = an_acceptance()
    _, evidence, _ = carried_out(acceptance)
    assert len(evidence.runs) == 10
    for missing in evidence.runs:
        rest = replace(evidence, runs=tuple(run for run in evidence.runs if run is not missing))
        assessment = assess(acceptance, rest)
        assert not assessment.is_complete
        assert assessment.answer == NOT_ACCEPTED
    assert assess(acceptance, replace(evidence, checks={})).answer == NOT_ACCEPTED


def test_a_run_that_somebody_adds_to_a_session_does_not_count() -> None:
    acceptance = an_acceptance()
    _, evidence, _ = carried_out(acceptance, lambda *_: a_row(ratio=0.5))
    better = tuple(replace(run, id=f"{run.id}x", row=a_row(ratio=1.0)) for run in evidence.runs)
    assessment = assess(acceptance, replace(evidence, runs=(*evidence.runs, *better)))
    assert assessment.is_complete
    assert assessment.answer == NOT_ACCEPTED


def test_a_run_that_has_not_ended_is_waited_for() -> None:
    acceptance = an_acceptance()
    _, evidence, _ = carried_out(acceptance)
    running = replace(evidence.runs[3], row=a_row(status="Running"))
    runs = (*evidence.runs[:3], running, *evidence.runs[4:])
    assessment = assess(acceptance, replace(evidence, runs=runs))
    assert (assessment.waiting, assessment.needed) == ((running.id,), ())
    assert not assessment.is_complete
    assert assessment.answer == NOT_ACCEPTED


def test_nobody_is_suspected_before_the_first_round_of_groups_has_ended() -> None:
    acceptance = an_acceptance()

    def machine(phase: str, group: Group, _number: int) -> Mapping[str, Any]:
        return (
            a_row(status="Failed") if phase == "pairs" and "n1" in group else sound(phase, group, 1)
        )

    _, evidence, _ = carried_out(acceptance, machine)
    first = [run for run in evidence.runs if run.session == "test.pairs.microbench_all_reduce.1"]
    running = replace(first[1], row=a_row(status="Running"))
    begun = [run for run in evidence.runs if run.session.split(".")[1] in ("health", "node")]
    assessment = assess(acceptance, replace(evidence, runs=(*begun, first[0], running, first[2])))
    assert (assessment.waiting, assessment.needed) == ((running.id,), ())


@pytest.mark.parametrize(("names_nodes", "answer"), [(False, ACCEPTED), (True, NOT_ACCEPTED)])
def test_the_check_of_this_machine_alone_may_have_another_name_for_it(
    names_nodes: bool, answer: str
) -> None:
    plan = "title: x\nphases: [{name: health, check: quick}]"
    acceptance = an_acceptance(plan, ("here.example.org",), names_nodes=names_nodes)
    _, evidence, _ = carried_out(acceptance)
    (run,) = evidence.runs
    checks = {run.id: {"here": NodeWord(word="OK")}}
    assert assess(acceptance, replace(evidence, checks=checks)).answer == answer
    # Of two nodes, nobody knows which one this machine is.
    checks = {run.id: {"here": NodeWord(word="OK"), "there": NodeWord(word="OK")}}
    assert assess(acceptance, replace(evidence, checks=checks)).answer == NOT_ACCEPTED


def test_a_value_of_0_has_no_speed_to_compare() -> None:
    def machine(phase: str, group: Group, number: int) -> Mapping[str, Any]:
        row = dict(sound(phase, group, number))
        if phase == "node":
            metric = {**row["metrics"]["busbw"], "better": "lower", "mean": 0.0}
            row["metrics"] = {"busbw": metric}
        return row

    assert carried_out(an_acceptance(), machine)[0].answer == ACCEPTED


def test_phases_that_passed_are_no_answer_while_a_run_is_open_or_if_a_node_left() -> None:
    passed = (PhaseOutcome(name="health", status=PASSED),)
    assert Assessment(phases=passed).answer == ACCEPTED
    assert Assessment(phases=passed, waiting=("run1",)).answer == NOT_ACCEPTED
    lost = PhaseOutcome(name="node", status=PASSED, left={"n3": "FAULT"})
    assert Assessment(phases=(*passed, lost)).answer == NOT_ACCEPTED


@pytest.mark.parametrize("word", ["FAULT", "SLOW", "UNKNOWN"])
def test_a_node_that_its_check_does_not_call_ok_leaves(word: str) -> None:
    assessment, _, asked = carried_out(an_acceptance(), words={"n2": word})
    assert assessment.answer == NOT_ACCEPTED
    assert assessment.left == {"n2": f"health: {word}"}
    later = [group for needed in asked[1:] for group in needed.groups]
    assert later
    assert all("n2" not in group for group in later)


def test_a_bad_node_of_a_pair_is_found_with_another_partner() -> None:
    def machine(phase: str, group: Group, number: int) -> Mapping[str, Any]:
        is_bad = phase == "pairs" and "n4" in group
        return a_row(status="Failed") if is_bad else sound(phase, group, number)

    assessment, _, asked = carried_out(an_acceptance(), machine)
    assert set(assessment.left) == {"n4"}
    assert statuses(assessment)["pairs"] == FAILED
    confirming = next(one for one in asked if one.session == "test.pairs.microbench_all_reduce.2")
    assert confirming.groups == (("n3", "n1"), ("n4", "n2"))


def test_a_slow_node_is_found_by_its_peers_and_one_that_was_slow_once_stays() -> None:
    def machine(phase: str, group: Group, number: int) -> Mapping[str, Any]:
        if phase == "node" and group == ("n3",):
            return a_row(90.0)
        if phase == "node" and group == ("n5",) and number == 1:
            return a_row(80.0)
        return sound(phase, group, number)

    assessment, _, _ = carried_out(an_acceptance(), machine)
    assert set(assessment.left) == {"n3"}
    assert "10.0 % below the median of 5 groups" in assessment.left["n3"]
    (note,) = assessment.phases[1].notes
    assert note.startswith("n5: ")


def test_where_every_pair_fails_nobody_is_good() -> None:
    def machine(phase: str, group: Group, number: int) -> Mapping[str, Any]:
        return a_row(status="Failed") if phase == "pairs" else sound(phase, group, number)

    assessment, _, _ = carried_out(an_acceptance(), machine)
    assert set(assessment.left) == set(NODES)
    assert statuses(assessment)["training"] == NOT_RUN
    assert assessment.answer == NOT_ACCEPTED


@pytest.mark.parametrize("bad", [None, "n3"])
def test_a_job_that_cannot_run_beside_one_that_can_is_listed(bad: str | None) -> None:
    plan = """\
title: A test
phases:
  - {name: node, nodes: 1, jobs: [{job: microbench_gemm}, {job: microbench_all_reduce}]}
"""
    reason = "it needs two ranks"
    acceptance = an_acceptance(plan, cannot_run={"node.microbench_all_reduce": reason})

    def machine(_phase: str, group: Group, _number: int) -> Mapping[str, Any]:
        return a_row(status="Failed") if group == (bad,) else a_row()

    assessment, _, asked = carried_out(acceptance, machine)
    assert assessment.answer == NOT_ACCEPTED
    assert statuses(assessment) == {"node": NOT_RUN}
    assert set(assessment.left) == ({bad} if bad else set())
    assert {needed.session.split(".")[2] for needed in asked} == {"microbench_gemm"}
    texts = [item.text for item in assessment.phases[0].items if item.status == NOT_RUN]
    assert texts == [f"cannot run: {reason}"]


@pytest.mark.parametrize(
    "session",
    [
        "node.microbench_gemm-bf16.1",
        "pairs.microbench_all_reduce.1",
        "training.pretrain_llama3_1_8b.1",
    ],
)
def test_a_node_that_the_scheduler_refuses_fails_its_phase_and_the_plan_continues(
    session: str,
) -> None:
    down = {"n3": f"test.{session}"}
    assessment, _, asked = carried_out(an_acceptance(), down=down)
    phase = session.partition(".")[0]
    assert assessment.answer == NOT_ACCEPTED
    assert set(assessment.left) == {"n3"}
    assert assessment.left["n3"].startswith(f"{phase}: ")
    assert REFUSED in assessment.left["n3"]
    others = dict.fromkeys(statuses(assessment), PASSED)
    assert statuses(assessment) == {**others, phase: FAILED}
    sessions = [needed.session for needed in asked]
    assert "test.training.pretrain_llama3_1_8b.1" in sessions
    later = asked[sessions.index(f"test.{session}") :]
    assert all("n3" not in group for needed in later for group in needed.groups)


def test_a_node_that_is_lost_when_it_is_measured_again_fails() -> None:
    def machine(phase: str, group: Group, number: int) -> Mapping[str, Any]:
        is_bad = phase == "node" and group == ("n3",)
        return a_row(status="Failed") if is_bad else sound(phase, group, number)

    down = {"n3": "test.node.microbench_gemm-bf16.2"}
    assessment, _, _ = carried_out(an_acceptance(), machine, down=down)
    assert set(assessment.left) == {"n3"}
    assert REFUSED in assessment.left["n3"]
    assert "before: Failed: it broke" in assessment.left["n3"]


def test_a_lost_partner_is_replaced_and_blames_no_other_node() -> None:
    def machine(phase: str, group: Group, number: int) -> Mapping[str, Any]:
        is_bad = phase == "pairs" and "n4" in group
        return a_row(status="Failed") if is_bad else sound(phase, group, number)

    down = {"n1": "test.pairs.microbench_all_reduce.2"}
    assessment, _, asked = carried_out(an_acceptance(), machine, down=down)
    assert set(assessment.left) == {"n1", "n4"}
    assert asked[-2].groups == (("n3", "n2"), ("n4", "n5"))


def test_a_cluster_whose_nodes_are_all_lost_is_not_accepted() -> None:
    down = dict.fromkeys(NODES, "test.training.pretrain_llama3_1_8b.1")
    assessment, _, _ = carried_out(an_acceptance(), down=down)
    assert set(assessment.left) == set(NODES)
    assert statuses(assessment)["training"] == NOT_RUN


@pytest.mark.parametrize("work", ["jobs: [{job: m}]", "check: quick", "nodes: 2, jobs: [{job: m}]"])
def test_nothing_is_submitted_in_a_phase_that_lost_all_nodes(work: str) -> None:
    acceptance = an_acceptance(f"title: A test\nphases: [{{name: all, {work}}}]\n")
    assessment = assess(acceptance.with_lost("all", dict.fromkeys(NODES, REFUSED)), Evidence())
    assert assessment.is_complete
    assert set(assessment.left) == set(NODES)
    assert assessment.answer == NOT_ACCEPTED


def test_jobs_that_ran_before_a_node_was_lost_do_not_run_again() -> None:
    plan = """\
title: A test
phases:
  - {name: all, jobs: [{job: m}]}
  - {name: more, jobs: [{job: a}, {job: b}]}
  - {name: check, check: quick}
"""
    acceptance = an_acceptance(plan)
    _, evidence, _ = carried_out(acceptance)
    before = replace(evidence, runs=tuple(r for r in evidence.runs if ".b." not in r.session))
    assessment = assess(acceptance.with_lost("more", {"n3": REFUSED}), before)
    (needed,) = assessment.needed
    assert (needed.session, needed.groups) == ("test.more.b.1", (("n1", "n2", "n4", "n5"),))
    # The check that ran has all nodes. A further one that was not refused has the others.
    assessment = assess(acceptance.with_lost("check", {"n3": REFUSED}), evidence)
    assert assessment.is_complete
    assert set(assessment.left) == {"n3"}
    unchecked = replace(evidence, runs=evidence.runs[:-1])
    assessment = assess(acceptance.with_lost("check", {"n3": REFUSED}), unchecked)
    assert assessment.needed[0].groups == (("n1", "n2", "n4", "n5"),)


def fault(code: str = "nodes-out-of-service", key: str = "nodelist", value: Any = "n[3-4]") -> Any:
    return api.Fault(message="it is down", code=code, key=key, value=value)


@pytest.mark.parametrize(
    ("faults", "lost"),
    [
        ([fault()], ["n3", "n4"]),
        ([fault(), fault(key="", value=3)], ["n3", "n4"]),  # the partition is too small now
        ([fault(key="", value="n3")], []),
        ([fault(), fault("slurm-would-refuse", "", "Invalid account")], []),
        ([fault(value="m1")], []),
        ([], []),
    ],
)
def test_only_a_node_of_the_acceptance_that_is_down_is_lost(
    faults: list[api.Fault], lost: list[str]
) -> None:
    assert [*lost_nodes(InputFaults(faults), NODES)] == lost


class FakeSite:
    """Submissions that run at once, and are refused if they name a node that is down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, faults: list[Any]) -> None:
        self.evidence, self.faults, self.first = Evidence(), faults, ""
        self.refused: list[str] = []
        self.config = SimpleNamespace(runs_root=folder)
        monkeypatch.setattr(running, "gather", lambda *_: self.evidence)
        monkeypatch.setattr(running, "_submit", self.submit)

    def submit(self, _context: Any, acceptance: Acceptance, needed: Needed, _folder: Path) -> None:
        if needed.session == self.first and any("n3" in group for group in needed.groups):
            self.refused.append(needed.session)
            raise PreflightError(self.faults)
        for group in needed.groups:
            self.evidence = after(acceptance, self.evidence, needed, group, sound, {})


def test_a_lost_node_is_recorded_and_the_rest_is_submitted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site: Any = FakeSite(monkeypatch, tmp_path, [fault(value="n3")])
    site.first = "test.pairs.microbench_all_reduce.1"
    assessment, evidence = running.complete(site, an_acceptance())
    assert site.refused == [site.first]
    assert set(assessment.left) == {"n3"}
    kept = store.load(tmp_path / FOLDER, "test")
    assert kept is not None
    assert kept.lost == {"pairs": {"n3": "it is down"}}
    assert assess(kept, evidence) == assessment  # as verify does with the archive


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ("test.health", "nodes-out-of-service"),  # nothing has run: name the nodes that are up
        ("test.pairs.microbench_all_reduce.1", "partition-unknown"),
    ],
)
def test_another_refusal_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: str, code: str
) -> None:
    site: Any = FakeSite(monkeypatch, tmp_path, [fault(code, value="n3")])
    site.first = first
    with pytest.raises(PreflightError):
        running.complete(site, an_acceptance())
    assert not (tmp_path / FOLDER).exists()


def test_one_passing_attempt_is_enough() -> None:
    def machine(phase: str, _group: Group, number: int) -> Mapping[str, Any]:
        return a_row(ratio=(0.90 if number == 1 else 0.96) if phase == "training" else None)

    assessment, _, asked = carried_out(an_acceptance(), machine)
    assert assessment.answer == ACCEPTED
    assert [one.session for one in asked][-2:] == [
        "test.training.pretrain_llama3_1_8b.1",
        "test.training.pretrain_llama3_1_8b.2",
    ]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (a_row(ratio=0.949), "94.9 %"),
        (a_row(ratio=0.95), "95.0 % of its reference; more than 95 % is needed"),
        (a_row(), "NO_REFERENCE"),
        (a_row(ratio=1.0, invalid=["it was profiled"]), "INVALID: it was profiled"),
        (a_row(status="Cancelled"), "Cancelled"),
        (a_row(ratio=1.0, metrics={}), "it measured nothing"),
    ],
)
def test_what_never_passes_where_a_reference_is_required(row: dict[str, Any], text: str) -> None:
    def machine(phase: str, group: Group, number: int) -> Mapping[str, Any]:
        return row if phase == "training" else sound(phase, group, number)

    assessment, _, _ = carried_out(an_acceptance(), machine)
    assert assessment.answer == NOT_ACCEPTED
    assert assessment.left == {}  # a job of all nodes blames none
    (item,) = assessment.phases[-1].items
    assert item.status == FAILED
    assert text in item.text


def test_a_minimum_and_a_bound_of_the_workload() -> None:
    plan = PLAN.replace("{job: microbench_all_reduce}", "{job: m, minimum: {busbw: 101}}")
    assessment, _, _ = carried_out(an_acceptance(plan))
    assert "busbw 100 GB/s is below 101" in assessment.left["n1"]
    low = a_row(ratio=0.97)
    low["metrics"]["busbw"]["bounds"] = {"minimum": 120.0}
    assessment, _, _ = carried_out(an_acceptance(), lambda *_: low)
    assert "is below 120" in assessment.left["n1"]


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("PASS", ACCEPTED),
        ("WARN", ACCEPTED),
        ("INCONCLUSIVE", NOT_ACCEPTED),
        ("FAIL", NOT_ACCEPTED),
        (None, NOT_ACCEPTED),  # too short
    ],
)
def test_a_sustained_training_needs_its_own_verdict(word: str | None, answer: str) -> None:
    plan = """\
title: A soak
phases: [{name: sustained, jobs: [{job: pretrain_x, sustained: true}]}]
"""
    verdict = None if word is None else {"verdict": word, "reason": "6 % slower at the end"}

    def machine(_phase: str, _group: Group, _number: int) -> Mapping[str, Any]:
        return a_row(sustained_verdict=verdict)

    assessment, _, _ = carried_out(an_acceptance(plan), machine)
    assert assessment.answer == answer
    (item,) = assessment.phases[0].items
    assert ("6 % slower" in item.text) == (word is not None)  # also on the certificate of a PASS


def comparison(loss: str = "PASS", memory: str = "PASS") -> dict[str, Any]:
    """A row of `llmb-run compare --baseline april --format json`."""
    reference = {"value": 50.0, "release": "baseline april"}
    words = {"busbw": "PASS", "loss": loss, "peak_memory": memory}
    return {
        "runs": ["run0"],
        "metrics": {
            name: {"verdict": word, "reason": f"{name} is {word}", "reference": reference}
            for name, word in words.items()
        },
    }


@pytest.mark.parametrize(
    ("value", "better", "ratio"),
    [(49.0, "higher", 0.98), (40.0, "higher", 0.8), (40.0, "lower", 1.25)],
)
def test_a_baseline_is_the_reference_where_nothing_is_published(
    value: float, better: str, ratio: float
) -> None:
    row = a_row(value)
    row["metrics"]["busbw"]["better"] = better
    (enriched,) = compared({"run0": row}, [comparison()]).values()
    assert enriched["metrics"]["busbw"]["ratio"] == pytest.approx(ratio)
    required = PlanRow(name="r", job="j", ratio_above=0.95)
    problem = problem_of(enriched, required)
    assert (problem == "") == (ratio > 0.95)
    assert problem_of(row, required).startswith("NO_REFERENCE")
    assert "of baseline april" in (problem or shown(enriched))


def test_a_value_just_beyond_its_limit_is_shown_beyond_it() -> None:
    required = PlanRow(name="r", job="j", minimum={"busbw": 50.0})
    assert problem_of(a_row(49.99999), required) == "busbw 49.99999 GB/s is below 50"
    assert problem_of(a_row(42.5), required) == "busbw 42.5 GB/s is below 50"
    row = a_row(50.0, ratio=0.949996)
    required = PlanRow(name="r", job="j", ratio_above=0.95)
    assert problem_of(row, required).startswith(("FAIL: 94.9996 % of", "94.9996 % of"))


def test_a_published_figure_is_the_reference_beside_a_baseline() -> None:
    (enriched,) = compared({"run0": a_row(40.0, ratio=0.97)}, [comparison()]).values()
    assert enriched["metrics"]["busbw"]["ratio"] == 0.97


@pytest.mark.parametrize("change", [{"loss": "FAIL"}, {"memory": "FAIL"}])
def test_a_fast_run_with_a_wrong_loss_or_memory_fails(change: dict[str, str]) -> None:
    (enriched,) = compared({"run0": a_row(50.0)}, [comparison(**change)]).values()
    assert problem_of(enriched, PlanRow(name="r", job="j")).startswith("FAIL: ")


def test_what_cannot_run_makes_it_not_accepted_and_is_listed() -> None:
    cannot_run = {"training.pretrain_llama3_1_8b": "there is no such workload"}
    assessment, evidence, _ = carried_out(an_acceptance(cannot_run=cannot_run))
    assert assessment.answer == NOT_ACCEPTED
    assert statuses(assessment)["training"] == NOT_RUN
    text = certificate.as_text(
        certificate.make(an_acceptance(), assessment, evidence, "2026-11-26")
    )
    assert text.startswith("NOT_ACCEPTED\n")
    assert "there is no such workload" in " ".join(text.split())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"nodes": ("n1",)}, "it needs 2 nodes, and 1 are left"),
        ({"gpus_per_node": 1}, "it needs 8 GPUs, and 5 are left"),
    ],
)
def test_a_cluster_that_is_too_small_is_not_accepted(changes: dict[str, Any], text: str) -> None:
    assessment, _, _ = carried_out(an_acceptance(**changes))
    assert assessment.answer == NOT_ACCEPTED
    assert text in [item.text for phase in assessment.phases for item in phase.items]


def test_rows_of_other_gpu_types_do_not_count_and_a_phase_without_any_is_not_run() -> None:
    plan = PLAN.replace("{job: microbench_all_reduce}", "{job: m, gpu_types: [b200]}, {job: n}")
    _, _, asked = carried_out(an_acceptance(plan))
    assert [one.session for one in asked if "pairs" in one.session] == ["test.pairs.n.1"]
    plan = PLAN.replace("{job: microbench_all_reduce}", "{job: m, gpu_types: [b200]}")
    assessment, _, _ = carried_out(an_acceptance(plan))
    assert statuses(assessment)["pairs"] == NOT_RUN


def test_one_release_throughout() -> None:
    acceptance = an_acceptance(f"one_release: true\n{PLAN}")
    assessment, evidence, _ = carried_out(acceptance)
    assert assessment.answer == ACCEPTED
    last = replace(evidence.runs[-1], llmb_version="0.2.0")
    mixed = assess(acceptance, replace(evidence, runs=(*evidence.runs[:-1], last)))
    assert mixed.answer == NOT_ACCEPTED
    assert mixed.problems == ("llmb was not one release throughout: 0.1.0, 0.2.0",)
    plugins = [
        replace(last, llmb_version="0.1.0", plugin=name, plugin_version="2") for name in ("", "p")
    ]
    runs = [replace(run, plugin_version="1") for run in evidence.runs[:-1]]
    without, with_plugin = (
        assess(acceptance, replace(evidence, runs=(*runs, run))).problems for run in plugins
    )
    assert without == ("a workload was not one release throughout: 1, 2",)
    assert with_plugin == ()  # another plugin may have another release
    anything = assess(an_acceptance(), replace(evidence, runs=(*evidence.runs[:-1], last)))
    assert anything.answer == ACCEPTED


def test_a_changed_outcome_is_seen_against_the_certificate() -> None:
    acceptance = an_acceptance()
    assessment, evidence, _ = carried_out(acceptance)
    kept = certificate.make(acceptance, assessment, evidence, "2026-11-26")
    kept = json.loads(json.dumps(kept))  # as in the archive
    again = certificate.make(acceptance, assessment, evidence, "2026-11-26")
    assert certificate.differences(kept, again) == []
    bad = replace(evidence.runs[-1], row=a_row(ratio=0.5))
    worse = replace(evidence, runs=(*evidence.runs[:-1], bad))
    recomputed = assess(replace(acceptance, plan_text=PLAN.replace("attempts: 2, ", "")), worse)
    other = certificate.make(acceptance, recomputed, worse, "2026-11-26")
    assert certificate.differences(kept, other) == ["answer", "phases"]


def test_the_line_has_who_and_what() -> None:
    acceptance = an_acceptance(by="Acme")
    assessment, evidence, _ = carried_out(acceptance)
    made = certificate.make(acceptance, assessment, evidence, "2026-11-26T12:00:00+00:00")
    assert certificate.line(made, "0" * 64) == (
        "ACCEPTED test: kit, 5 nodes, 40 h100, 2026-11-26, llmb 0.1.0, by Acme,"
        f" archive sha256 {'0' * 64}"
    )


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_groups_have_every_node_and_one_size(size: int) -> None:
    groups = split(NODES, size)
    assert {len(set(group)) for group in groups} == {size}
    assert {node for group in groups for node in group} == set(NODES)


def test_a_job_of_all_nodes_has_the_largest_scale_that_fits() -> None:
    row = PlanRow(name="x", job="x", scales=(4, 16, 64))
    assert placed(row, ("a", "b", "c"), 8) == (("a", "b"), 16)
    assert placed(row, ("a",), 8) == (("a",), 4)
    assert placed(replace(row, scales=()), ("a", "b", "c"), 8) == (("a", "b", "c"), 24)
    with pytest.raises(LookupError, match="needs 4 GPUs"):
        placed(row, ("a",), 2)


def test_two_groups_are_not_compared_and_even_ones_need_the_spread() -> None:
    assert peers_limit([100.0, 10.0])(10.0) is None
    limit = peers_limit([100.0, 100.0, 100.0, 97.0])
    assert limit(97.0) is None
    assert limit(96.0) == "4.0 % below the median of 4 groups"


# Plans as files


def broken() -> Iterator[tuple[str, str]]:
    yield "title: x\nphases: [{name: a, check: never}]", "phases[0].check"
    yield "title: x\nphases: [{name: a}]", "phases[0]"
    yield "title: x\nphases: [{name: a, jobs: []}]", "phases[0].jobs"
    yield "title: x\nphases: [{name: a, jobs: [{job: m}], nodse: 1}]", "phases[0].nodse"
    yield "title: x\nphases: [{name: a, jobs: [{dtype: m}]}]", "phases[0].jobs[0].job"
    yield "title: x\nphases: [{name: a, nodes: 0, jobs: [{job: m}]}]", "phases[0].nodes"
    yield (
        "title: x\nphases: [{name: a, nodes: 1, jobs: [{job: m, scale: 8}]}]",
        "phases[0].jobs[0].scale",
    )
    yield (
        "title: x\nphases: [{name: a, jobs: [{job: m, task: {repeats: 3}}]}]",
        "phases[0].jobs[0].task.repeats",
    )
    yield "title: x\nphases: [{name: a.b, check: quick}]", "phases[0].name"
    yield "title: x\nphases: [{name: a, check: quick}, {name: a, check: full}]", "phases[1].name"
    yield "phases: []", "title"
    yield "title: x\nphases: []", "phases"
    yield from (
        (f"title: x\nphases: [{{name: a, jobs: [{{job: m, {key}: {value}}}]}}]", place)
        for key, value, place in (
            ("ratio_above", "95", "phases[0].jobs[0].ratio_above"),
            ("ratio_above", "2.01", "phases[0].jobs[0].ratio_above"),
            ("ratio_above", "-0.1", "phases[0].jobs[0].ratio_above"),
            ("ratio_above", ".nan", "phases[0].jobs[0].ratio_above"),
            ("spread", "5", "phases[0].jobs[0].spread"),
            ("spread", "1", "phases[0].jobs[0].spread"),
            ("spread", "-0.1", "phases[0].jobs[0].spread"),
            ("spread", ".nan", "phases[0].jobs[0].spread"),
            ("minimum", "{busbw: .nan}", "phases[0].jobs[0].minimum.busbw"),
        )
    )
    yield "[", ""
    yield "title: x\ntitle: y\nphases: [{name: a, check: quick}]", ""


@pytest.mark.parametrize(("text", "key"), list(broken()))
def test_a_fault_of_a_plan_names_its_place(text: str, key: str) -> None:
    with pytest.raises(api.UsageError) as refused:
        read_plan(text, "mine.yaml")
    assert (refused.value.code, refused.value.key) == ("plan-invalid", key)
    assert refused.value.message.startswith("mine.yaml")
    assert refused.value.hint


def test_a_key_that_a_plan_has_twice_is_refused_with_both_lines() -> None:
    text = """\
title: x
phases:
  - name: node
    jobs:
      - job: microbench_gemm
        minimum: {tflops: 999}
        minimum: {tflops: 0.0001}
"""
    with pytest.raises(api.UsageError) as refused:
        read_plan(text, "dup.yaml")
    assert refused.value.message == "dup.yaml:7: duplicate key 'minimum' (first in line 6)"


@pytest.mark.parametrize(
    "limits", ["ratio_above: 0", "ratio_above: 2", "ratio_above: 1.02", "spread: 0", "spread: 0.99"]
)
def test_a_limit_at_its_border_is_read(limits: str) -> None:
    read_plan(f"title: x\nphases: [{{name: a, jobs: [{{job: m, {limits}}}]}}]", "mine.yaml")


def test_a_limit_in_percent_is_refused_with_the_fraction() -> None:
    for limit, hint in (("ratio_above: 95", "0.95 is 95 %"), ("spread: 5", "0.05 is 5 %")):
        with pytest.raises(api.UsageError) as refused:
            read_plan(f"title: x\nphases: [{{name: a, jobs: [{{job: m, {limit}}}]}}]", "x.yaml")
        assert hint in str(refused.value.hint)


def test_every_shipped_plan_is_read_and_has_the_phases_of_an_acceptance() -> None:
    plans = {
        name: read_plan(path.read_text("utf-8"), str(path)) for name, path in shipped().items()
    }
    assert list(plans) == ["exemplar", "quick", "standard"]
    names = [phase.name for phase in plans["quick"].phases]
    assert names == ["health", "node", "pairs", "collective", "training", "sustained"]
    assert "valid for 12 months" in plans["exemplar"].statement
    assert plans["exemplar"].one_release


def test_the_exemplar_plan_has_the_suite_of_each_gpu_type() -> None:
    path = find_plan("exemplar")
    (suite,) = (phase for phase in read_plan(path.read_text("utf-8"), "x").phases if phase.rows)
    counts = {
        gpu: sum(gpu in row.gpu_types for row in suite.rows)
        for gpu in ("gb300", "gb200", "b300", "b200", "h100")
    }
    # The tables of Exemplar_validation.md, counted by hand.
    assert counts == {"gb300": 14, "gb200": 13, "b300": 13, "b200": 12, "h100": 5}
    assert {(row.scales, row.ratio_above) for row in suite.rows} == {((512,), 0.95)}


def test_a_plan_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(api.UsageError, match="installed are exemplar, quick, standard"):
        find_plan("thorough")
    with pytest.raises(api.UsageError) as refused:
        find_plan("./thorough.yaml")
    assert refused.value.code == "plan-missing"


def test_another_distribution_adds_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "acme_plans"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "acme.yaml").write_text(PLAN)
    info = tmp_path / "acme_plans-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-plans\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[llmb_accept.plans]\nacme = acme_plans\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_plan("acme") == package / "acme.yaml"


# The command


@pytest.fixture
def install(tmp_path: Path) -> Path:
    """An install directory of a Slurm cluster that is not here: dry runs need none."""
    names = ["pretrain_llama3.1", "pretrain_nemotron4", "microbench", "node_check"]
    config = {
        "schema_version": 2,
        "cluster_type": "slurm",
        "cluster_name": "far",
        "gpu_type": "h100",
        "slurm": {"container": "none", "gpu": {"partition": "gpu", "gres": 8}},
        "workloads": {"installed": names},
    }
    (tmp_path / "cluster_config.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


def dry_run(llmb_run: Callable[..., Any], install: Path, plan: str, nodes: str) -> dict[str, Any]:
    done = llmb_run(
        *("accept", plan, "--nodelist", nodes, "--dry-run", "--format", "json"),
        *("--install", install),
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("plan", ["quick", "standard"])
def test_every_job_of_a_shipped_plan_can_run_on_16_nodes(
    llmb_run: Callable[..., Any], install: Path, plan: str
) -> None:
    answer = dry_run(llmb_run, install, plan, "n[01-16]")
    assert [row for row in answer["rows"] if row["problem"]] == []
    assert answer["gpu_hours"] == pytest.approx(sum(row["gpu_hours"] for row in answer["rows"]))
    assert list(install.iterdir()) == [install / "cluster_config.yaml"]


def test_rows_of_the_exemplar_suite_that_cannot_run_here_are_listed(
    llmb_run: Callable[..., Any], install: Path
) -> None:
    rows = dry_run(llmb_run, install, "exemplar", "n[01-64]")["rows"]
    assert len(rows) == 6  # five of the suite, and the check
    problems = {row["what"]: row["problem"] for row in rows}
    assert problems["pretrain_llama3_1_70b-bf16"] == ""
    rows = dry_run(llmb_run, install, "exemplar", "n[01-63]")["rows"]
    problems = {row["what"]: row["problem"] for row in rows}
    assert problems["check"] == ""
    assert problems["pretrain_llama3_1_70b-bf16"] == "it needs 512 GPUs, and 504 are left"


def test_a_workload_that_llmb_lacks_is_listed(
    llmb_run: Callable[..., Any], install: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "mine.yaml"
    plan.write_text("title: x\nphases: [{name: a, jobs: [{job: pretrain_hal_9000b}]}]")
    (row,) = dry_run(llmb_run, install, str(plan), "n[01-63]")["rows"]
    assert "pretrain_hal_9000b" in row["problem"]
    assert row["gpu_hours"] is None
    plan.write_text("title: x\nphases: [{name: a, jobs: [{job: microbench_gem, dtype: bf16}]}]")
    (row,) = dry_run(llmb_run, install, str(plan), "n[01-63]")["rows"]
    assert "did you mean 'gemm'?" in row["problem"]


def test_a_phase_without_a_job_for_the_gpu_type_is_listed(
    llmb_run: Callable[..., Any], install: Path, tmp_path: Path
) -> None:
    """Else a dry run would promise an acceptance that no run can give."""
    plan = tmp_path / "mine.yaml"
    job = "{job: microbench_gemm, dtype: bf16, gpu_types: [%s]}"
    phases = ", ".join(f"{{name: {name}, jobs: [{job % name}]}}" for name in ("h100", "b200"))
    plan.write_text(f"title: x\nphases: [{phases}]")
    can_run, cannot = dry_run(llmb_run, install, str(plan), "n1")["rows"]
    assert (can_run["phase"], can_run["problem"]) == ("h100", "")
    assert (cannot["phase"], cannot["problem"]) == ("b200", "the plan has no job for h100")
    words = ("accept", str(plan), "--nodelist", "n1", "--dry-run", "--install", install)
    assert llmb_run(*words).stdout.splitlines()[-1] == (
        "it would be NOT_ACCEPTED: 1 of 2 cannot run"
    )


@pytest.mark.parametrize(
    ("job", "metric", "hint"),
    [
        ("microbench_gemm", "tflop", "did you mean 'tflops'?"),
        ("microbench_gemm", "busbw", "one of tflops"),  # of another size
        ("microbench_gemm", "step_time", "one of tflops"),  # it trains no model
        ("pretrain_nemotron4_15b", "tokens_per_secnd", "did you mean 'tokens_per_second'?"),
    ],
)
def test_a_minimum_of_a_metric_that_a_job_does_not_measure_is_refused(
    llmb_run: Callable[..., Any], install: Path, tmp_path: Path, job: str, metric: str, hint: str
) -> None:
    plan = tmp_path / "mine.yaml"
    plan.write_text(
        "title: x\nphases:\n  - {name: health, check: quick}\n  - {name: a, jobs: [{job: other,"
        f" gpu_types: [b200]}}, {{job: {job}, dtype: bf16, minimum: {{{metric}: 3}}}}]}}\n"
    )
    for words in (("--dry-run",), ()):
        done = llmb_run("accept", plan, "--nodelist", "n[1-2]", *words, "--install", install)
        assert (done.returncode, done.stdout) == (2, "")
        shown = " ".join(done.stderr.split())
        refused = f"mine.yaml: phases[1].jobs[1].minimum.{metric} is no metric of {job}"
        assert refused in shown
        assert hint in shown
    assert [*(install / "workloads").glob(f"{FOLDER}/*/")] == []


@pytest.mark.parametrize(
    ("job", "metric"),
    [
        ("microbench_gemm", "tflops"),
        ("microbench_gemm", "watts_per_gpu"),
        ("pretrain_nemotron4_15b", "tokens_per_second"),
        ("pretrain_nemotron4_15b", "mfu"),
    ],
)
def test_a_minimum_of_a_metric_that_a_result_may_have(
    llmb_run: Callable[..., Any], install: Path, tmp_path: Path, job: str, metric: str
) -> None:
    plan = tmp_path / "mine.yaml"
    row = f"{{job: {job}, dtype: bf16, minimum: {{{metric}: 3}}}}"
    plan.write_text(f"title: x\nphases: [{{name: a, jobs: [{row}]}}]\n")
    (row,) = dry_run(llmb_run, install, str(plan), "n[1-2]")["rows"]
    assert row["problem"] == ""


def a_cost(hours: float | None, most: float | None, source: str | None) -> RowCost:
    return RowCost(
        phase="a",
        what="m",
        jobs=1,
        gpus=8,
        gpu_hours=hours,
        most_gpu_hours=most,
        source=source,
        problem="" if source else "it cannot run",
    )


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([a_cost(2.0, 2.0, "limit"), a_cost(None, None, None)], "up to 2.00 h by the time limits"),
        (
            [a_cost(0.5, 2.0, "past"), a_cost(2.0, 2.0, "limit")],
            "up to 4.00 h by the time limits, about 2.50 (from past runs and time limits)",
        ),
        (
            [a_cost(1.0, 2.0, "published")],
            "up to 2.00 h by the time limits, about 1.00 (from published step times)",
        ),
        ([], "up to 0.00 h by the time limits"),
    ],
)
def test_the_greatest_cost_is_by_the_time_limits(rows: list[RowCost], text: str) -> None:
    assert running.cost_in_words(rows, "h") == text


def test_the_limits_of_all_jobs_of_a_row_count(
    llmb_run: Callable[..., Any], install: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "mine.yaml"
    row = '{job: microbench_gemm, dtype: bf16, task: {time_limit: "01:30:00"}}'
    plan.write_text(f"title: x\nphases: [{{name: a, nodes: 1, jobs: [{row}]}}]\n")
    answer = dry_run(llmb_run, install, str(plan), "n[1-3]")
    assert answer["most_gpu_hours"] == answer["rows"][0]["most_gpu_hours"] == 3 * 8 * 1.5
    assert answer["rows"][0]["source"] == "limit"


@pytest.mark.parametrize(("gpu_type", "unit"), [("h100", "GPU-hours"), ("cpu", "CPU-hours")])
def test_nodes_without_gpus_cost_cpu_hours(
    llmb_run: Callable[..., Any], install: Path, gpu_type: str, unit: str
) -> None:
    path = install / "cluster_config.yaml"
    config = yaml.safe_load(path.read_text())
    config["slurm"][gpu_type.replace("h100", "gpu")] = {"partition": gpu_type}
    path.write_text(yaml.safe_dump({**config, "gpu_type": gpu_type}))
    words = ("accept", "quick", "--nodelist", "n[1-4]", "--dry-run", "--install", install)
    heading, *lines = llmb_run(*words).stdout.splitlines()
    (total,) = [line for line in lines if line.startswith("up to ")]
    assert unit in heading.split()
    assert unit in total.replace(",", "").split()


def test_the_nodes_must_be_named(llmb_run: Callable[..., Any], install: Path) -> None:
    done = llmb_run("accept", "quick", "--install", install)
    assert done.returncode == 2
    assert "--nodelist" in done.stderr


@pytest.mark.parametrize("option", ["nodelist", "partition", "account", "qos", "reservation"])
def test_an_option_of_slurm_is_refused_on_a_single_machine(
    llmb_run: Callable[..., Any], install: Path, option: str
) -> None:
    path = install / "cluster_config.yaml"
    config = {**yaml.safe_load(path.read_text()), "cluster_type": "local"}
    del config["slurm"]
    path.write_text(yaml.safe_dump(config))
    words = ("accept", "quick", "--dry-run", "--install", install)
    assert llmb_run(*words).returncode == 0
    done = llmb_run(*words, f"--{option}", "n1")
    assert done.returncode == 2
    refused = f"error: --{option} is an option of Slurm, and this cluster has type local"
    assert refused in " ".join(done.stderr.split())
    assert done.stdout == ""


@pytest.mark.parametrize("nodes", ["n[1-", "n1]", "n[[1]]", "n[4-1]", "n[]", " "])
def test_a_text_that_is_no_list_of_nodes_is_refused_as_it_was_written(
    llmb_run: Callable[..., Any], install: Path, nodes: str
) -> None:
    for words in (("accept", "quick"), ("nodes", "check")):
        done = llmb_run(*words, "--nodelist", nodes, "--dry-run", "--install", install)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"--nodelist: '{nodes}' is not a list of nodes" in done.stderr
    assert list(install.iterdir()) == [install / "cluster_config.yaml"]


def test_nothing_is_left_of_an_acceptance_whose_first_jobs_are_refused(
    llmb_run: Callable[..., Any], install: Path
) -> None:
    """The nodes or the partition can be corrected, and the plan begun again under its name."""
    words = ("accept", "quick", "--nodelist", "n[1-4]", "--install", install)
    done = llmb_run(*words, PATH=str(Path(sys.executable).parent))  # no sbatch
    assert done.returncode == 1
    assert "nothing was submitted" in done.stderr
    assert [*(install / "workloads" / FOLDER).glob("*/")] == []
    assert llmb_run(*words, "--dry-run").returncode == 0


@pytest.mark.parametrize("runs", [[], ["run0"]])
def test_an_acceptance_with_runs_stays_if_a_later_submission_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: list[str]
) -> None:
    def refuse(*_: object) -> None:
        raise api.LlmbError("this Slurm has no partition 'x'")

    acceptance = an_acceptance()
    store.save(tmp_path, acceptance)
    monkeypatch.setattr(running, "complete", refuse)
    monkeypatch.setattr(running, "find_runs", lambda *_: runs)
    context: Any = None
    with pytest.raises(api.LlmbError, match="no partition"):
        _carry_out(context, tmp_path, acceptance, "test.yaml", tmp_path / "a.zst", None, "json")
    assert (store.load(tmp_path, "test") is not None) == bool(runs)


def begun_in(install: Path, **changes: Any) -> None:
    """Write an acceptance of the plan ``quick`` on n[1-2] that was begun."""
    root = install / "workloads" / FOLDER
    values = {"plan_text": find_plan("quick").read_text("utf-8"), "plan_file": "quick.yaml"}
    store.save(root, an_acceptance(nodes=("n1", "n2"), **(values | {"name": "quick"} | changes)))


@pytest.mark.parametrize(
    ("words", "difference"),
    [
        ("--partition other", "with --partition gpu"),
        ("--qos high", "without --qos"),
        ("--account a", "without --account"),
        ("--reservation r", "without --reservation"),
        ("--image x.sqsh", "without --image"),
        ("--nodelist n[1-3]", "with n[1-2]"),
        ("--gpu-type b200", "with --gpu-type h100"),
        ("--partition gpu --gpu-type h100 --nodelist n[1-2] --by Else", None),
        ("", None),
    ],
)
def test_an_option_that_differs_when_continuing_is_refused(
    llmb_run: Callable[..., Any], install: Path, words: str, difference: str | None
) -> None:
    begun_in(install, options=("--partition", "gpu"))
    done = llmb_run("accept", "quick", *words.split(), "--dry-run", "--install", install)
    assert done.returncode == (0 if difference is None else 2), done.stderr
    shown = " ".join(done.stderr.split())
    refused = f"quick was begun 2026-11-26T12:00:00+00:00 {difference} "
    assert (refused in shown) == (difference is not None)


def test_who_continues_an_acceptance_is_on_its_certificate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop(_context: Any, acceptance: Acceptance) -> None:
        assert acceptance.by == "Else"
        raise KeyboardInterrupt

    begun = an_acceptance(by="Acme", nodes=())
    store.save(tmp_path, begun)
    chosen = _continued(tmp_path, replace(begun, by="Else"), "test", is_nodelist_given=False)
    monkeypatch.setattr(running, "complete", stop)
    context: Any = None
    with pytest.raises(click.exceptions.Exit) as raised:
        _carry_out(context, tmp_path, chosen, "x.yaml", tmp_path / "a.zst", None, "json")
    assert raised.value.exit_code == 130
    kept = store.load(tmp_path, "test")
    assert kept is not None
    assert kept.by == "Else"  # also in the archive
    unchanged = replace(begun, by=None)
    assert _continued(tmp_path, unchanged, "test", is_nodelist_given=False).by == "Else"


def test_the_command_to_continue_has_what_is_to_be_written() -> None:
    acceptance = an_acceptance(by="Acme, R. Roe")
    words = (acceptance, "my plan.yaml", Path("a.tar.zst"), Path("r.html"), "json")
    assert command_to_continue(*words) == (
        "llmb-run accept 'my plan.yaml' --name test --by 'Acme, R. Roe' --output a.tar.zst"
        " --report r.html --format json"
    )
    bare = command_to_continue(an_acceptance(), "quick", None, None, "table")
    assert bare == "llmb-run accept quick --name test"


def test_an_acceptance_that_is_not_complete_is_open(
    llmb_run: Callable[..., Any], install: Path
) -> None:
    """It has a row for each phase of the plan, no answer and no line to paste."""
    begun_in(install)
    done = llmb_run("accept", "show", "--install", install)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("OPEN\n")
    assert "ACCEPTED" not in done.stdout
    lines = [line.split() for line in done.stdout.splitlines() if line]
    table = [line for line in lines if line[0] in ("health", "node", "pairs", "sustained")]
    assert [line[:4] for line in table] == [
        ["health", "-", "open", "-"],
        ["node", "-", "not", "run"],
        ["pairs", "-", "not", "run"],
        ["sustained", "-", "not", "run"],
    ]
    done = llmb_run("accept", "show", "quick", "--format", "json", "--install", install)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["answer"], shown["line"], shown["archive"]) == (NOT_ACCEPTED, None, None)
    assert [phase["status"] for phase in shown["phases"]] == [OPEN, *[NOT_RUN] * 5]


@pytest.mark.parametrize("change", ["none", "moved", "another"])
def test_the_line_of_a_complete_acceptance_has_the_checksum_of_its_archive(
    llmb_run: Callable[..., Any], install: Path, tmp_path: Path, change: str
) -> None:
    begun_in(install)
    root = install / "workloads" / FOLDER
    acceptance = store.load(root, "quick")
    assert acceptance is not None
    assessment, evidence, _ = carried_out(acceptance, lambda *_: a_row(sustained_verdict=None))
    issued = certificate.make(acceptance, assessment, evidence, "2026-11-26T12:00:00+00:00")
    store.save_certificate(root, "quick", issued)
    archive = tmp_path / "quick.tar.zst"
    archive.write_text("the archive")
    written = store.WrittenArchive(path=str(archive), size=11, sha256="a1" * 32)
    store.save_archive(root, "quick", written)
    if change == "moved":
        archive.rename(tmp_path / "other.tar.zst")
    elif change == "another":
        archive.write_text("another one, which is longer")
    commands = [("show", "quick"), ("run", "quick", "--name", "quick", "--nodelist", "n[1-2]")]
    for words in commands:
        done = llmb_run("accept", *words, "--install", install)
        assert done.returncode == (0 if issued["answer"] == ACCEPTED else 3), done.stderr
        last = done.stdout.splitlines()[-1]
        assert last.startswith(f"{issued['answer']} quick: ")
        assert last.endswith(f"archive sha256 {'a1' * 32}") == (change == "none")
    done = llmb_run("accept", "show", "--format", "json", "--install", install)
    place = {"path": str(archive), "sha256": "a1" * 32} if change == "none" else None
    assert json.loads(done.stdout)["archive"] == place


def test_an_unknown_baseline_is_refused(llmb_run: Callable[..., Any], install: Path) -> None:
    words = ("accept", "quick", "--nodelist", "n[1-4]", "--baseline", "april", "--dry-run")
    done = llmb_run(*words, "--install", install)
    assert done.returncode == 2
    assert "april" in done.stderr


def test_two_commands_do_not_carry_out_one_acceptance(
    llmb_run: Callable[..., Any], install: Path
) -> None:
    """The second one names the process that has it, and writes nothing."""
    root = install / "workloads" / FOLDER
    with api.hold_lock(root, "night"):
        done = llmb_run(
            *("accept", "quick", "--nodelist", "n[1-4]", "--name", "night", "--install", install)
        )
    assert done.returncode == 1
    assert "is in use by process" in done.stderr
    assert not (root / "night").exists()
