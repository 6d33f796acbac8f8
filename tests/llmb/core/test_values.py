# SPDX-License-Identifier: Apache-2.0
"""Tests that the values of llmb behave like the frozen dataclasses of the standard library."""

import copy
import dataclasses
import inspect
import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, field, replace
from typing import Any, Generic, TypeVar, cast, get_type_hints

import pytest

from llmb.core import values
from llmb.core.values import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A value with every kind of field."""

    name: str
    gpus: int = 8
    words: list[str] = field(default_factory=list, hash=False)
    place: str = field(default="", compare=False, repr=False)
    settings: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ValueError("no GPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterJob(Job):
    """A value with the fields of another one."""

    after: int = 0


@dataclass(frozen=True, slots=True)
class Pair(Generic[T]):
    """A value by position."""

    first: T
    second: T | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """A value without fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Single:
    """A value with one field."""

    number: float


@dataclass(frozen=True, slots=True)
class Name:
    """A value with functions of its own."""

    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) and self.text.lower() == other.text.lower()

    def __hash__(self) -> int:
        return hash(self.text.lower())

    def __repr__(self) -> str:
        return f"<{self.text}>"


def test_fields_have_their_values_and_defaults() -> None:
    job, other = Job(name="a", gpus=4), Job(name="b")
    assert (job.name, job.gpus, job.words, job.place) == ("a", 4, [], "")
    assert other.gpus == 8
    assert job.words is not other.words
    assert Pair(1, 2) == Pair(first=1, second=2)
    assert LaterJob(name="a", after=3).gpus == 8


def test_a_field_can_be_made_of_others() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        first: str
        name: str = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "name", f"{self.first} X")

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Later(Named):
        title: str = ""

    assert repr(Named(first="A")).endswith("Named(first='A', name='A X')")
    assert Later(first="A", title="Dr").name == "A X"
    with pytest.raises(TypeError):
        Named(first="A", name="B")  # type: ignore[call-arg]


def test_equal_values_have_one_hash() -> None:
    job = Job(name="a", place="here", words=["x"])
    assert job == Job(name="a", place="there", words=["x"])
    assert job != Job(name="a")
    assert hash(job) == hash(Job(name="a"))
    assert job != LaterJob(name="a", words=["x"])
    assert job != cast(object, "a")
    assert Nothing() == Nothing()
    assert len({Nothing(), Nothing(), Single(number=1.0), Single(number=1)}) == 2
    assert Single(number=math.nan) == Single(number=math.nan)
    assert len({Name("a"), Name("A")}) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Job(name="a", place="here"), "Job(name='a', gpus=8, words=[], settings={})"),
        (Pair(1, Nothing()), "Pair(first=1, second=Nothing())"),
        (Name("a"), "<a>"),
        (LaterJob(name="a"), "LaterJob(name='a', gpus=8, words=[], settings={}, after=0)"),
    ],
)
def test_the_text_of_a_value(value: object, text: str) -> None:
    assert repr(value) == text


@pytest.mark.parametrize("value", [Job(name="a"), LaterJob(name="a"), Pair(1), Nothing()])
def test_a_value_cannot_change(value: Any) -> None:
    for name in ("name", "first", "new"):
        with pytest.raises((FrozenInstanceError, TypeError)):
            setattr(value, name, 1)
        with pytest.raises((FrozenInstanceError, TypeError)):
            delattr(value, name)
    assert not hasattr(value, "__dict__")


@pytest.mark.parametrize(
    "value", [Job(name="a", words=["x"]), LaterJob(name="a", after=2), Pair(1), Nothing()]
)
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value)), replace]
)
def test_a_copy_is_equal(value: Any, copied: Callable[[Any], Any]) -> None:
    assert copied(value) == value
    assert type(copied(value)) is type(value)


def test_values_are_checked_when_they_are_made() -> None:
    with pytest.raises(ValueError, match="no GPU"):
        Job(name="a", gpus=0)
    with pytest.raises(ValueError, match="no GPU"):
        replace(Job(name="a"), gpus=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Job(), "Job.__init__() missing 1 required keyword-only argument: 'name'"),  # type: ignore[call-arg]
        (lambda: Job(nam="a"), "Job.__init__() got an unexpected keyword argument 'nam'"),  # type: ignore[call-arg]
        (
            lambda: Job("a"),  # type: ignore[call-arg]
            "Job.__init__() takes 1 positional argument but 2 were given",
        ),
    ],
)
def test_wrong_arguments_name_the_class(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == message


def test_the_standard_library_knows_values() -> None:
    assert dataclasses.is_dataclass(Job)
    assert [one.name for one in dataclasses.fields(LaterJob)][-1] == "after"
    assert dataclasses.asdict(Pair(1, 2)) == {"first": 1, "second": 2}
    assert get_type_hints(Job)["gpus"] is int
    assert get_type_hints(Job.__init__)["gpus"] is int
    assert list(inspect.signature(Job).parameters)[:2] == ["name", "gpus"]

    @dataclasses.dataclass(frozen=True)
    class Subclass(Job):
        note: str = dataclasses.field(default="", kw_only=True)

    assert Subclass(name="a", note="b").note == "b"


def test_a_value_has_the_attributes_of_a_dataclass() -> None:
    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Standard:
        """A dataclass of the standard library."""

        number: float

    assert vars(Single).keys() == vars(Standard).keys()


def test_other_arguments_are_refused() -> None:
    with pytest.raises(AssertionError):
        vars(values)["dataclass"](frozen=False, slots=True)
