# SPDX-License-Identifier: Apache-2.0
"""A question of the wizard: a value with functions of what is known so far.

Nothing here uses the terminal.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

from llmb.contract import gpus, spec
from llmb.contract.cluster_type import (
    ClusterQuestion,
    ClusterTraits,
    ClusterType,
    undetermined,
)
from llmb.contract.sbatch import SlurmConfig
from llmb.core import typed, yamlfile
from llmb.core.addresses import unresolved_fault
from llmb.core.values import dataclass
from llmb.plan.framework import brought_sizes
from llmb.plan.read_config import raised_by
from llmb_installer.answers.layers import get_value, has_key, join, nest
from llmb_installer.cluster_types import all_types
from llmb_installer.detect import scheduler
from llmb_installer.detect.detected import Detected

_NOTHING = ("none", "-", "null")  # words for an empty answer


@dataclass(frozen=True, slots=True, kw_only=True)
class WizardView:
    """Everything known when a question is asked: detection, the answers so far, workloads.

    ``types`` are the cluster types to choose from.
    """

    detected: Detected
    workloads: Mapping[str, spec.Workload]
    data: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, ClusterType] = field(default_factory=all_types)

    def at(self, key: str) -> Any:
        return get_value(self.data, key)

    def has(self, key: str) -> bool:
        return has_key(self.data, key)

    def over(self, layer: Mapping[str, Any]) -> Self:
        return replace(self, data=join(self.data, layer))

    @property
    def slurm(self) -> scheduler.SlurmFound:
        """The detected Slurm. An empty one without Slurm."""
        return self.detected.slurm or scheduler.SlurmFound()

    @property
    def kind(self) -> str:
        return str(self.at("cluster_type"))

    @property
    def of_type(self) -> ClusterType:
        return self.types.get(self.kind) or undetermined(self.kind)

    @property
    def traits(self) -> ClusterTraits:
        """Return how workloads run on the cluster of the answers, as far as these can be read."""
        key, schema = self.of_type.key, self.of_type.schema
        section = self.at(key) if key is not None else None
        if schema is None or not isinstance(section, dict):
            return self.of_type.traits_of(None)
        return self.of_type.traits_of(
            typed.read_in_part(schema, yamlfile.Document(name="", data=section))[0]
        )

    @property
    def is_slurm(self) -> bool:
        return self.of_type.has(SlurmConfig)

    @property
    def partition(self) -> str:
        """The partition of GPU jobs in the answers. Empty for Slurm's default."""
        return str(self.at("slurm.gpu.partition") or self.at("slurm.partition") or "")

    @property
    def known_gpu_type(self) -> str:
        """The known GPU type whose configurations apply to the answers' GPU type."""
        name = str(self.at("gpu_type"))
        return str(self.at(f"gpu_types.{name}.like") or name)

    def has_configurations(self, gpu_type: str) -> bool:
        """Return True if a workload has rows for the known type ``gpu_type`` itself."""
        gpu = gpus.all_types(workload.gpu_types for workload in self.workloads.values()).get(
            gpu_type
        )
        if gpu is None or gpu.like is None:
            return gpu is not None
        workloads = self.workloads.values()
        has_rows = any(
            gpu_type in size.gpu_types()
            for workload in workloads
            for size in workload.sizes.values()
        )
        return has_rows or any(brought_sizes(workload, gpu_type) for workload in workloads)

    @property
    def uses_images(self) -> bool:
        return self.traits.uses_images


@dataclass(frozen=True, slots=True)
class AnswerOption:
    """An answer to choose from. It cannot be chosen if ``refused`` has a reason."""

    value: Any
    title: str
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Back:
    """In place of an answer: the user went back.

    ``value`` is what was typed or selected before, None for nothing.
    """

    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question, for the answer at ``key``."""

    key: str
    label: str
    text: str
    kind: Literal["text", "folder", "one", "many"]
    default: Callable[[WizardView], Any] = lambda _: ""
    options: Callable[[WizardView], list[AnswerOption]] = lambda _: []
    #: True if the question is needed here
    applies: Callable[[WizardView], bool] = lambda _: True
    #: True if its default needs no question. The review shows it, to be changed.
    clear: Callable[[WizardView], bool] = lambda _: False
    #: the fault of a value, None without one
    check: Callable[[WizardView, Any], str | None] = lambda _, value: None
    #: a check that takes time, and so runs only for an entered text
    check_at_enter: Callable[[WizardView, Any], str | None] = lambda _, value: None
    #: printed after the answer
    note: Callable[[WizardView, Any], str | None] = lambda _, value: None
    #: the answers for a value, by default ``nest(key, value)``, with null for an empty text
    layer: Callable[[WizardView, Any], dict[str, Any]] | None = None
    #: the inverse of ``layer``
    value: Callable[[Any], Any] = lambda value: value
    #: a value at one of these keys answers the question too
    also: tuple[str, ...] = ()
    #: the review's word for an empty value
    empty: str = "none"
    #: The answer may be empty. The word none means that too.
    optional: bool = False
    #: how to find out the answer, with commands
    find_out: str = ""

    def typed(self, text: str) -> str:
        """Return the value of a typed text: empty for the word none if the answer may be empty."""
        text = text.strip()
        return "" if self.optional and text.lower() in _NOTHING else text

    def answers(self, view: WizardView, value: Any) -> dict[str, Any]:
        return (
            self.layer(view, value)
            if self.layer is not None
            else nest(self.key, None if value == "" else value)
        )

    def is_given(self, view: WizardView) -> bool:
        """Return True if a file or an option answers the question."""
        return any(view.has(key) for key in (self.key, *self.also))

    def fault(self, view: WizardView, value: Any) -> str | None:
        """Return why ``value`` cannot be used, or None."""
        if self.kind in ("one", "many"):
            available = [option.value for option in self.options(view) if not option.refused]
            if any(item not in available for item in (value if self.kind == "many" else [value])):
                return "not one of the choices"
        if self.optional and value in (None, ""):
            return None
        return self.check(view, value)

    def shown(self, view: WizardView, value: Any) -> str:
        if isinstance(value, (list, tuple)):
            return ", ".join(str(item) for item in value) or self.empty
        return self.empty if value in (None, "") else str(value)


def read_row(name: str) -> dict[str, Any]:
    """Return the fields of the question ``name`` in questions.yaml, which has all but functions."""
    fields = _rows()[name]
    return {**fields, "also": tuple(fields.get("also", ()))}


@cache
def _rows() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = yamlfile.load_packaged(
        Path(__file__).with_name("questions.yaml")
    ).data
    return rows


def make_type_questions(kind: ClusterType) -> Iterator[Question]:
    """The questions of one cluster type, asked while it is the chosen one."""
    return (_question(kind, question) for question in kind.questions)


def _question(kind: ClusterType, question: ClusterQuestion) -> Question:
    key = f"{kind.key}.{question.key}"
    return Question(
        key=key,
        label=question.label or question.key,
        text=question.text,
        kind=question.kind,
        default=lambda view: _called(kind, question, "default", lambda: _default(question, view)),
        options=lambda view: [
            AnswerOption(choice, choice)
            for choice in _called(kind, question, "choices", lambda: _choices(question, view))
        ],
        applies=lambda view: view.kind == kind.name,
        check=lambda _, value: _called(kind, question, "check", lambda: _fault(question, value)),
        check_at_enter=lambda view, value: unresolved_fault(str(value), view.detected.environ),
        layer=lambda view, value: _layer(key, question, view, value),
        value=lambda answer: _called(kind, question, "show", lambda: question.show(answer)),
        empty=question.empty,
        optional=not question.required,
        find_out=question.find_out,
    )


def _layer(key: str, question: ClusterQuestion, view: WizardView, value: Any) -> dict[str, Any]:
    """The answer.

    An empty one leaves the section's default, and removes an answer that there was.
    """
    if value == "":
        return nest(key, None) if view.has(key) else {}
    return nest(key, question.parse(value))


def _default(question: ClusterQuestion, view: WizardView) -> str:
    environ = view.detected.environ
    if question.variable and (value := environ.get(question.variable)):
        return value if _fault(question, value) is None else ""
    return question.show(
        question.default(environ) if callable(question.default) else question.default
    )


def _choices(question: ClusterQuestion, view: WizardView) -> list[str]:
    choices = (
        question.choices(view.detected.environ) if callable(question.choices) else question.choices
    )
    return list(choices)


def _fault(question: ClusterQuestion, text: Any) -> str | None:
    if str(text).strip() == "":
        return "write a value" if question.required else None
    try:
        return question.check(question.parse(text))
    except ValueError as error:
        return str(error)


def _called(
    kind: ClusterType, question: ClusterQuestion, part: str, call: Callable[[], Any]
) -> Any:
    """Call a function of the cluster type. Raises LlmbError, which names its plugin."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        raise raised_by(kind, f"{part} of the question for '{question.key}'", error) from error
