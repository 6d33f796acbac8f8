# SPDX-License-Identifier: Apache-2.0
"""The questions that a plugin's cluster type brings, as the wizard asks them, and the answers that
come of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import llmb_installer.answers.read as reading
import llmb_installer.answers.schema as schema
from llmb.contract.cluster_type import ClusterQuestion, ClusterTraits, ClusterType
from llmb.contract.spec import Workload
from llmb.core import yamlfile
from llmb.errors import InputFaults, KeyFaultError, LlmbError
from llmb_installer.answers import layers
from llmb_installer.answers.layers import NOTHING, override
from llmb_installer.answers.read import read_answers, require_valid
from llmb_installer.answers.schema import collect_sections, to_yaml
from llmb_installer.cluster_types import all_types
from llmb_installer.detect import detected as detection
from llmb_installer.detect.auto import resolve_auto
from llmb_installer.detect.detected import Detected
from llmb_installer.detect.machine import MachineFound
from llmb_installer.detect.site import make_site
from llmb_installer.wizard.question import Question, WizardView
from llmb_installer.wizard.walk import Replies, ask_questions, list_current_values


@dataclass(frozen=True, slots=True, kw_only=True)
class MoonConfig:
    """The section of the type moon."""

    base: str
    landers: int = 1
    fuel: str = "kerosene"

    def __post_init__(self) -> None:
        if self.landers < 1:
            raise KeyFaultError("must be at least 1", "landers")


QUESTIONS = (
    ClusterQuestion(
        key="base",
        text="Base:",
        variable="MOON_BASE",
        required=True,
        check=lambda value: _no_crater(value),
    ),
    ClusterQuestion(key="landers", text="Landers:", default=2, parse=int),
    ClusterQuestion(
        key="fuel", text="Fuel:", kind="one", choices=("kerosene", "hydrogen"), default="hydrogen"
    ),
)
MOON = ClusterType(
    name="moon",
    create="moon:create",
    title="on the moon",
    schema=MoonConfig,
    traits=ClusterTraits(runs_in="image-reference"),
    questions=QUESTIONS,
    secrets=("MOON_TOKEN",),
    folder_variable="MOON_FOLDER",
    detect=lambda environ: environ.get("MOON_BASE"),
    source="llmb-moon:moon",
)


def _no_crater(value: object) -> str | None:
    return "is a crater" if value == "tycho" else None


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, ClusterType]:
    """All types, with the plugin's."""
    types = {**all_types(), "moon": MOON}

    def type_in(data: Any) -> ClusterType | None:
        return types.get(str(data.get("cluster_type"))) if isinstance(data, dict) else None

    for module in (reading, layers, detection):
        monkeypatch.setattr(module, "type_in", type_in)
    monkeypatch.setattr(schema, "type_named", types.get)
    for module in (schema, reading):
        monkeypatch.setattr(module, "all_types", lambda: types)
    return types


def view(
    tmp_path: Path, workloads: dict[str, Workload], types: Mapping[str, ClusterType], **environ: str
) -> WizardView:
    machine = MachineFound(architecture="x86_64", pythons={}, venv_types=("venv",))
    found = Detected(home=tmp_path, cwd=tmp_path, machine=machine, environ=environ)
    return WizardView(detected=found, workloads=workloads, types=types)


def test_its_questions_are_asked_and_become_its_section(
    tmp_path: Path, workloads: dict[str, Workload], known: Mapping[str, ClusterType]
) -> None:
    asked = []

    def prompt(question: Question, view: WizardView, default: Any, can_go_back: bool) -> Any:
        asked.append(question.key)
        value = "h100" if question.key == "gpu_type" else default
        assert question.fault(view, value) is None, (question.key, value)
        return value

    base = view(tmp_path, workloads, known, MOON_BASE="tranquility", MOON_FOLDER="/moon")
    layer = ask_questions(base, Replies(), prompt)
    assert layer is not None
    assert asked[:5] == ["cluster_type", "install", "moon.base", "moon.landers", "moon.fuel"]
    assert "venv_type" not in asked  # its jobs run in images
    assert (layer["cluster_type"], layer["install"]) == ("moon", "/moon/llmb")
    assert layer["moon"] == {"base": "tranquility", "landers": 2, "fuel": "hydrogen"}
    answers, _ = resolve_auto(read_answers(override(NOTHING, layer, "wizard"), workloads=workloads))
    assert answers.section == MoonConfig(base="tranquility", landers=2, fuel="hydrogen")
    site = make_site(answers, "h100")
    assert (site.cluster_type, site.runs.pulls_images, site.container) == ("moon", True, True)
    again = read_answers(yamlfile.parse(to_yaml(answers), name="again"), workloads=workloads)
    assert again.section == answers.section
    assert collect_sections(answers) == {
        "moon": {"base": "tranquility", "landers": 2, "fuel": "hydrogen"}
    }


@pytest.mark.parametrize(
    ("key", "value", "is_right"),
    [
        ("moon.base", "", False),
        ("moon.base", "tycho", False),
        ("moon.base", "copernicus", True),
        ("moon.landers", "many", False),
        ("moon.landers", "3", True),
        ("moon.landers", "", True),
        ("moon.fuel", "coal", False),
        ("moon.fuel", "hydrogen", True),
    ],
)
def test_a_typed_answer_is_checked(
    key: str,
    value: str,
    is_right: bool,
    tmp_path: Path,
    workloads: dict[str, Workload],
    known: Mapping[str, ClusterType],
) -> None:
    base = view(tmp_path, workloads, known).over({"cluster_type": "moon"})
    question = next(one for one, _, _ in list_current_values(base, {}) if one.key == key)
    assert (question.fault(base, value) is None) == is_right


def test_an_empty_answer_is_the_default_of_the_section(
    tmp_path: Path, workloads: dict[str, Workload], known: Mapping[str, ClusterType]
) -> None:
    given = {"moon.landers": "", "gpu_type": "h100"}
    base = view(tmp_path, workloads, known, MOON_BASE="x")
    memory = Replies(chosen={"cluster_type": "moon", **given})
    layer = ask_questions(base, memory, lambda question, view, default, can_go_back: default)
    assert layer is not None
    assert layer["moon"] == {"base": "x", "fuel": "hydrogen"}


def test_its_questions_are_not_asked_for_other_types(
    tmp_path: Path, workloads: dict[str, Workload], known: Mapping[str, ClusterType]
) -> None:
    base = view(tmp_path, workloads, known).over({"cluster_type": "local"})
    assert not [
        one.key
        for one, _, _ in list_current_values(base, {})
        if one.key.startswith(("moon.", "runai."))
    ]


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ("{}", ["moon.base"]),
        ("{base: x, landers: 0}", ["moon.landers"]),
        ("{base: x, landers: two}", ["moon.landers"]),
        ("{base: tycho}", ["moon.base"]),
        ("{base: x, feul: coal}", ["moon.feul"]),
        ("[x]", ["moon"]),
    ],
)
def test_a_file_is_checked_by_its_schema_and_its_questions(
    section: str, keys: list[str], workloads: dict[str, Workload]
) -> None:
    text = f"cluster_type: moon\ninstall: /x\ngpu_type: h100\nmoon: {section}\n"
    with pytest.raises(InputFaults) as caught:
        read_answers(yamlfile.parse(text, name="a.yaml"), workloads=workloads)
    assert keys[0] in [fault.key for fault in caught.value.faults]
    assert all(fault.place.startswith("a.yaml") for fault in caught.value.faults)


def test_its_section_may_be_given_before_its_type_is_chosen(workloads: dict[str, Workload]) -> None:
    require_valid(yamlfile.parse("moon: {landers: 2}\n", name="a.yaml"), workloads)
    with pytest.raises(InputFaults) as caught:
        require_valid(
            yamlfile.parse("moon: {landers: 2, feul: coal}\nearth: {}\n", name="a.yaml"), workloads
        )
    assert {fault.key for fault in caught.value.faults} == {"moon.feul", "earth"}


def test_keys_without_a_default_are_missing(workloads: dict[str, Workload]) -> None:
    with pytest.raises(InputFaults) as caught:
        read_answers(yamlfile.parse("cluster_type: moon\n", name="a.yaml"), workloads=workloads)
    assert [fault.key for fault in caught.value.faults] == ["install", "gpu_type", "moon.base"]


def test_variables_answer_headless(workloads: dict[str, Workload]) -> None:
    document = yamlfile.parse("cluster_type: moon\ngpu_type: h100\n", name="a.yaml")
    document, used = detection.add_variables(document, {"MOON_BASE": "x", "MOON_FOLDER": "/moon"})
    assert used == ["install from MOON_FOLDER", "moon.base from MOON_BASE"]
    answers = read_answers(document, workloads=workloads)
    assert (answers.install, answers.section.base) == (Path("/moon/llmb"), "x")


def test_a_question_that_fails_names_its_plugin(
    tmp_path: Path, workloads: dict[str, Workload], known: Mapping[str, ClusterType]
) -> None:
    broken = replace(MOON, questions=(replace(QUESTIONS[0], check=lambda value: 1 / 0),))  # type: ignore[arg-type, return-value]
    base = view(tmp_path, workloads, {**known, "moon": broken}).over({"cluster_type": "moon"})
    question = next(one for one, _, _ in list_current_values(base, {}) if one.key == "moon.base")
    with pytest.raises(LlmbError) as caught:
        question.fault(base, "x")
    assert (caught.value.code, caught.value.value) == ("plugin-failed", "llmb-moon:moon")
