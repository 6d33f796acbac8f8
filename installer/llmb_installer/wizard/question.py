# SPDX-License-Identifier: Apache-2.0
"""A question of the wizard: a value with functions of what is known so far. Nothing here uses the terminal."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

from llmb.config.cluster_type import ClusterQuestion, ClusterTraits, ClusterType
from llmb.config.own_types import own_types, undetermined
from llmb.config.reading import raised_by
from llmb.config.slurm import SlurmConfig
from llmb.text import typed, yamlfile
from llmb.workload import gpus, spec
from llmb.workload.bridge import bridge_sizes
from llmb_installer.answers.layers import given, joined, nested, value_at
from llmb_installer.detect import scheduler
from llmb_installer.detect.detected import Detected

_NOTHING = ("none", "-", "null")  # words for an empty answer


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything known when a question is asked: what was detected, the answers so far as ``data``, the workloads.

    ``types``: the cluster types to choose from.
    """

    detected: Detected
    workloads: Mapping[str, spec.Workload]
    data: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, ClusterType] = field(default_factory=own_types)

    def at(self, key: str) -> Any:
        return value_at(self.data, key)

    def has(self, key: str) -> bool:
        return given(self.data, key)

    def over(self, layer: Mapping[str, Any]) -> Self:
        return replace(self, data=joined(self.data, layer))

    @property
    def slurm(self) -> scheduler.SlurmFound:
        """The detected Slurm; an empty one without Slurm."""
        return self.detected.slurm or scheduler.SlurmFound()

    @property
    def kind(self) -> str:
        return str(self.at("cluster_type"))

    @property
    def of_type(self) -> ClusterType:
        return self.types.get(self.kind) or undetermined(self.kind)

    @property
    def traits(self) -> ClusterTraits:
        """How workloads run on the cluster that the answers describe, as far as they can be read."""
        key, schema = self.of_type.key, self.of_type.schema
        own = self.at(key) if key is not None else None
        if schema is None or not isinstance(own, dict):
            return self.of_type.traits_of(None)
        return self.of_type.traits_of(typed.read_in_part(schema, yamlfile.Document(name="", data=own))[0])

    @property
    def is_slurm(self) -> bool:
        return self.of_type.has(SlurmConfig)

    @property
    def partition(self) -> str:
        """The partition of GPU jobs in the answers; empty for Slurm's default."""
        return str(self.at("slurm.gpu.partition") or self.at("slurm.partition") or "")

    @property
    def known_gpu_type(self) -> str:
        """The known GPU type whose configurations apply to the answers' GPU type."""
        name = str(self.at("gpu_type"))
        return str(self.at(f"gpu_types.{name}.like") or name)

    def has_configurations(self, gpu_type: str) -> bool:
        """Whether a workload has rows for the known type ``gpu_type`` itself."""
        known = gpus.all_types(own.gpu_types for own in self.workloads.values()).get(gpu_type)
        if known is None or known.like is None:
            return known is not None
        every = self.workloads.values()
        has_nemo = any(gpu_type in size.gpu_types() for own in every for size in own.sizes.values())
        return has_nemo or any(bridge_sizes(own, gpu_type) for own in every)

    @property
    def uses_images(self) -> bool:
        return self.traits.uses_images


@dataclass(frozen=True, slots=True)
class Option:
    """One answer to choose from: its value, its title, and why it cannot be chosen where ``refused`` is not empty."""

    value: Any
    title: str
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Back:
    """In place of an answer: the user went back. ``value`` is what was typed or selected before, None for nothing."""

    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question, for the answer at ``key``; a value at one of the keys ``also`` answers it too.

    ``applies``: whether the question is needed here; ``clear``: whether its default is used without asking (the review
    shows it, and it can be changed there); ``check``: the fault of a value, None without one; ``note``: printed after
    the answer; ``layer``: the answers for a value, by default ``nested(key, value)``, with null for an empty text;
    ``value``: the inverse of ``layer``; ``empty``: how the review shows an empty value; ``optional``: the answer may be
    empty, and the word none means that too; ``find_out``: for who does not know the answer, how to find it out.
    """

    key: str
    label: str
    text: str
    kind: Literal["text", "folder", "one", "many"]
    default: Callable[[View], Any] = lambda _: ""
    options: Callable[[View], list[Option]] = lambda _: []
    applies: Callable[[View], bool] = lambda _: True
    clear: Callable[[View], bool] = lambda _: False
    check: Callable[[View, Any], str | None] = lambda _, value: None
    note: Callable[[View, Any], str | None] = lambda _, value: None
    layer: Callable[[View, Any], dict[str, Any]] | None = None
    value: Callable[[Any], Any] = lambda value: value
    also: tuple[str, ...] = ()
    empty: str = "none"
    optional: bool = False
    find_out: str = ""

    def typed(self, text: str) -> str:
        """The value of a typed text: nothing for the word none, where an answer may be empty."""
        text = text.strip()
        return "" if self.optional and text.lower() in _NOTHING else text

    def answers(self, view: View, value: Any) -> dict[str, Any]:
        return self.layer(view, value) if self.layer is not None else nested(self.key, None if value == "" else value)

    def is_given(self, view: View) -> bool:
        """Whether a file or an option answers the question."""
        return any(view.has(key) for key in (self.key, *self.also))

    def fault(self, view: View, value: Any) -> str | None:
        """Why ``value`` cannot be used; None where it can."""
        if self.kind in ("one", "many"):
            available = [option.value for option in self.options(view) if not option.refused]
            if any(item not in available for item in (value if self.kind == "many" else [value])):
                return "not one of the choices"
        if self.optional and value in (None, ""):
            return None
        return self.check(view, value)

    def shown(self, view: View, value: Any) -> str:
        if isinstance(value, (list, tuple)):
            return ", ".join(str(item) for item in value) or self.empty
        return self.empty if value in (None, "") else str(value)


def row(name: str) -> dict[str, Any]:
    """What questions.yaml has for the question ``name``: the fields of Question that are no functions."""
    own = _rows()[name]
    return {**own, "also": tuple(own.get("also", ()))}


@cache
def _rows() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = yamlfile.load(Path(__file__).with_name("questions.yaml")).data
    return rows


def questions_of(kind: ClusterType) -> Iterator[Question]:
    """The questions of one cluster type, asked while it is the chosen one."""
    return (_question(kind, own) for own in kind.questions)


def _question(kind: ClusterType, own: ClusterQuestion) -> Question:
    key = f"{kind.key}.{own.key}"
    return Question(
        key=key,
        label=own.label or own.key,
        text=own.text,
        kind=own.kind,
        default=lambda view: _called(kind, own, "default", lambda: _default(own, view)),
        options=lambda view: [Option(one, one) for one in _called(kind, own, "choices", lambda: _choices(own, view))],
        applies=lambda view: view.kind == kind.name,
        check=lambda _, value: _called(kind, own, "check", lambda: _fault(own, value)),
        layer=lambda view, value: _layer(key, own, view, value),
        value=lambda answer: _called(kind, own, "show", lambda: own.show(answer)),
        empty=own.empty,
        optional=not own.required,
        find_out=own.find_out,
    )


def _layer(key: str, own: ClusterQuestion, view: View, value: Any) -> dict[str, Any]:
    """The answer; an empty one leaves the section's default, and removes an answer that there was."""
    if value == "":
        return nested(key, None) if view.has(key) else {}
    return nested(key, own.parse(value))


def _default(own: ClusterQuestion, view: View) -> str:
    environ = view.detected.environ
    if own.variable and (given := environ.get(own.variable)):
        return given if _fault(own, given) is None else ""
    return own.show(own.default(environ) if callable(own.default) else own.default)


def _choices(own: ClusterQuestion, view: View) -> list[str]:
    found = own.choices(view.detected.environ) if callable(own.choices) else own.choices
    return list(found)


def _fault(own: ClusterQuestion, text: Any) -> str | None:
    if str(text).strip() == "":
        return "write a value" if own.required else None
    try:
        return own.check(own.parse(text))
    except ValueError as error:
        return str(error)


def _called(kind: ClusterType, own: ClusterQuestion, part: str, call: Callable[[], Any]) -> Any:
    """What a function of the cluster type returns. Raises LlmbError, which names its plugin."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        raise raised_by(kind, f"{part} of the question for '{own.key}'", error) from error
