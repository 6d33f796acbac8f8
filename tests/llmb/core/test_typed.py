# SPDX-License-Identifier: Apache-2.0
"""Tests that data becomes typed values, and that every fault in it is reported with its place and
code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import pytest
from hypothesis import given, strategies as st

from llmb.core import typed
from llmb.core.typed import KeyFaultError, read, read_in_part, to_data
from llmb.core.yamlfile import Document, parse
from llmb.errors import Fault, InputFaults, UsageError, describe


class Even:
    """A class that reads and writes itself."""

    def __init__(self, value: int) -> None:
        self.value = value

    @classmethod
    def parse(cls, value: Any) -> Even:
        if type(value) is not int or value % 2:
            raise ValueError(f"{value} is not even")
        return cls(value)

    def unparse(self) -> int:
        return self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Even) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


def below_ten(value: int) -> None:
    if value >= 10:
        raise ValueError(f"{value} is not below 10")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    name: str
    count: int = 1

    def __post_init__(self) -> None:
        if self.name == "none" and self.count:
            raise ValueError(f"a part 'none' has no count, not {self.count}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    title: str = "t"
    ratio: float = 1.0
    strict: bool = False
    where: Path = Path("here")
    kind: Literal["slurm", "local"] = "local"
    limit: int | None = None
    either: int | str = 0
    part: Part | None = None
    parts: tuple[Part, ...] = ()
    names: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    by_name: dict[str, Part] = field(default_factory=dict)
    even: Even | None = None
    small: Annotated[int, below_ten] = 0
    anything: Any = None


def whole(text: str) -> Whole:
    return read(Whole, parse(text, name="w.yaml"))


def faults(text: str) -> list[Fault]:
    with pytest.raises(InputFaults) as caught:
        whole(text)
    return caught.value.faults


def fault(text: str) -> Fault:
    (only,) = faults(text)
    return only


def test_an_empty_document_is_all_defaults() -> None:
    assert whole("") == Whole()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("title: x", Whole(title="x")),
        ("title: 2024", Whole(title="2024")),
        ("title: 25.10", Whole(title="25.10")),  # not 25.1: a text field has the number as written
        ("title: 0x10", Whole(title="0x10")),
        ("ratio: 2", Whole(ratio=2.0)),
        ("ratio: 1e-3", Whole(ratio=0.001)),  # text in YAML 1.1, which needs 1.0e-3
        ("ratio: 1.5e+3", Whole(ratio=1500.0)),
        ("strict: true", Whole(strict=True)),
        ("where: /a/b", Whole(where=Path("/a/b"))),
        ("kind: slurm", Whole(kind="slurm")),
        ("limit: 3", Whole(limit=3)),
        ("limit: null", Whole(limit=None)),
        ("limit:", Whole(limit=None)),
        ("either: 3", Whole(either=3)),
        ("either: three", Whole(either="three")),
        ("part: {name: a}", Whole(part=Part(name="a"))),
        (
            "parts: [{name: a}, {name: b, count: 2}]",
            Whole(parts=(Part(name="a"), Part(name="b", count=2))),
        ),
        ("parts: {name: a}", Whole(parts=(Part(name="a"),))),
        ("names: [a, b]", Whole(names=("a", "b"))),
        ("names: a", Whole(names=("a",))),
        ("names: []", Whole(names=())),
        ("env: {A: x, B: 1, C: 1.50}", Whole(env={"A": "x", "B": "1", "C": "1.50"})),
        ("by_name: {1: {name: a}}", Whole(by_name={"1": Part(name="a")})),
        ("even: 4", Whole(even=Even(4))),
        ("small: 9", Whole(small=9)),
        ("anything: [1, {a: null}]", Whole(anything=[1, {"a": None}])),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_valid_data_is_read(text: str, expected: Whole) -> None:
    assert whole(text) == expected


def test_a_path_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert whole("where: ~/x").where == Path("/home/me/x")


WRONG: dict[str, tuple[str, str, object]] = {
    "tilte: x": ("key-unknown", "tilte", "tilte"),
    "part: {}": ("key-missing", "part", "name"),
    "part: {name: a, cuont: 1}": ("key-unknown", "part.cuont", "cuont"),
    "part: [a]": ("value-type", "part", ["a"]),
    "limit: x": ("value-type", "limit", "x"),
    "limit: 0128": ("value-type", "limit", "0128"),
    "limit: 1e2": ("value-type", "limit", "1e2"),
    "limit: 1e-2": ("value-type", "limit", "1e-2"),
    "limit: 0100": ("number-ambiguous", "limit", "0100"),
    "limit: 2:08": ("number-ambiguous", "limit", "2:08"),
    "ratio: 1:30.5": ("number-ambiguous", "ratio", "1:30.5"),
    "even: 010": ("number-ambiguous", "even", "010"),
    "limit: 1.5": ("value-type", "limit", 1.5),
    "limit: true": ("value-type", "limit", True),
    "ratio: fast": ("value-type", "ratio", "fast"),
    "ratio: false": ("value-type", "ratio", False),
    "ratio: null": ("value-type", "ratio", None),
    "strict: 1": ("value-type", "strict", 1),
    "strict: 'yes'": ("value-type", "strict", "yes"),
    "title: no": ("value-type", "title", False),
    "title:": ("value-type", "title", None),
    "title: [a]": ("value-type", "title", ["a"]),
    "title: 2025-01-31": ("value-type", "title", date(2025, 1, 31)),
    "where: 3": ("value-type", "where", 3),
    "where: ''": ("value-type", "where", ""),
    "where: ~nobody-here/x": ("home-unknown", "where", "~nobody-here/x"),
    "kind: slrum": ("value-not-allowed", "kind", "slrum"),
    "kind: [slurm]": ("value-not-allowed", "kind", ["slurm"]),
    "names: [a, null]": ("value-type", "names.1", None),
    "names:": ("value-type", "names", None),
    "names: {a: b}": ("value-type", "names", {"a": "b"}),
    "env: [A]": ("value-type", "env", ["A"]),
    "env:\n  A:": ("value-type", "env.A", None),
    "env: {no: x}": ("key-invalid", "env.False", False),
    "env: {25.10: x}": ("key-invalid", "env.25.1", 25.1),
    "even: 3": ("value-not-allowed", "even", 3),
    "small: 10": ("value-not-allowed", "small", 10),
    "small: x": ("value-type", "small", "x"),
    "part: {name: none}": ("value-not-allowed", "part", {"name": "none"}),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_fault_has_place_code_key_and_value(text: str) -> None:
    found = fault(text)
    assert found.place == f"w.yaml:{len(text.splitlines())}"
    assert (found.code, found.key, found.value) == WRONG[text]


def test_wording_of_faults(wording: Callable[..., None]) -> None:
    wording(
        "yaml", "\n\n".join(f"{text}\n{describe(InputFaults([fault(text)]))}" for text in WRONG)
    )


@pytest.mark.parametrize("text", ["- a\n", "just text\n", "3\n"])
def test_a_document_that_is_not_a_mapping(text: str) -> None:
    assert (fault(text).code, fault(text).key) == ("value-type", "")


NESTED = """\
title: x
parts:
  - name: a
  - nmae: b
    count: many
by_name:
  first:
    name: c
    count: 1.5
env: {A: x,
      B: no}
"""


def test_all_faults_are_reported_each_at_its_line() -> None:
    found = [(one.place, one.code, one.key) for one in faults(NESTED)]
    assert sorted(found, key=lambda one: int(one[0].rpartition(":")[2])) == [
        ("w.yaml:4", "key-unknown", "parts.1.nmae"),
        ("w.yaml:4", "key-missing", "parts.1"),
        ("w.yaml:5", "value-type", "parts.1.count"),
        ("w.yaml:9", "value-type", "by_name.first.count"),
        ("w.yaml:11", "value-type", "env.B"),
    ]


def test_faults_are_one_input_error_printed_with_hints() -> None:
    with pytest.raises(UsageError) as caught:
        whole("tilte: x\nlimit: x\n")
    first, second = cast(InputFaults, caught.value).faults
    assert (caught.value.exit_code, caught.value.code, caught.value.key) == (
        2,
        "key-unknown",
        "tilte",
    )
    assert describe(caught.value).splitlines() == [
        f"error: {first}",
        f"hint: {first.hint}",
        f"error: {second}",
    ]


def test_part_of_a_document_is_read_with_its_places() -> None:
    document = parse("a:\n  b: {name: x}\n  c: {nmae: x}\n", name="w.yaml")
    assert read(Part, document, ("a", "b")) == Part(name="x")
    with pytest.raises(InputFaults) as caught:
        read(Part, document, ("a", "c"))
    assert [(one.place, one.key) for one in caught.value.faults] == [
        ("w.yaml:3", "a.c.nmae"),
        ("w.yaml:3", "a.c"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    first: int
    second: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, value in self.second.items():
            if value < self.first:
                raise KeyFaultError(f"{value} is below the first", "second", key, hint="take more")


def test_a_check_between_fields_names_the_faulty_key() -> None:
    with pytest.raises(InputFaults) as caught:
        read(Pair, parse("first: 2\nsecond:\n  a: 3\n  b: 1\n", name="w.yaml"))
    (found,) = caught.value.faults
    assert (found.place, found.code, found.key) == ("w.yaml:4", "value-not-allowed", "second.b")
    assert (found.value, found.hint) == (1, "take more")


def test_valid_fields_are_returned_with_the_faults() -> None:
    found, wrong = read_in_part(Whole, parse("title: x\nlimit: y\n", name="w.yaml"))
    assert found == Whole(title="x")
    assert [one.place for one in wrong] == ["w.yaml:2"]


def test_a_faulty_required_field_gives_no_value() -> None:
    found, wrong = read_in_part(Pair, parse("first: x\n", name="w.yaml"))
    assert found is None
    assert [(one.code, one.key, one.value) for one in wrong] == [("value-type", "first", "x")]


def test_a_fault_without_a_line_names_the_file() -> None:
    with pytest.raises(InputFaults) as caught:
        read(Whole, Document(name="job.json", data={"limit": "x"}))
    assert [(one.place, one.key) for one in caught.value.faults] == [("job.json", "limit")]


def test_to_data() -> None:
    value = Whole(where=Path("/a"), parts=(Part(name="a"),), env={"A": "x"}, even=Even(2))
    written = to_data(value)
    assert written["where"] == "/a"
    assert written["parts"] == [{"name": "a", "count": 1}]
    assert written["even"] == 2


class Spread:
    """A class that writes itself as numbers in a mapping."""

    def __init__(self, ends: tuple[float, float]) -> None:
        self.ends = ends

    def unparse(self) -> dict[str, list[float]]:
        return {"ends": [*self.ends]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    ratio: float = 0.5
    by_name: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    spread: Spread | None = None
    kept: float = field(default=0.0, metadata=typed.INTERNAL)


def test_own_data_has_texts_for_the_numbers_that_json_lacks() -> None:
    value = Measured(
        ratio=math.nan, by_name={"loss": (1.5, -math.inf)}, spread=Spread((math.inf, 2.0))
    )
    assert typed.own_data(value) == {
        "ratio": "nan",
        "by_name": {"loss": [1.5, "-inf"]},
        "spread": {"ends": ["inf", 2.0]},
    }
    assert to_data(value)["by_name"] == {"loss": [1.5, -math.inf]}


texts = st.text(max_size=5)
parts = st.builds(Part, name=texts.filter(lambda text: text != "none"), count=st.integers())
wholes = st.builds(
    Whole,
    title=texts,
    ratio=st.floats(allow_nan=False),
    strict=st.booleans(),
    where=st.sampled_from([Path("/a/b"), Path("c")]),
    kind=st.sampled_from(["slurm", "local"]),
    limit=st.none() | st.integers(),
    either=st.integers() | texts,
    part=st.none() | parts,
    parts=st.lists(parts, max_size=3).map(tuple),
    names=st.lists(texts, max_size=3).map(tuple),
    env=st.dictionaries(texts, texts, max_size=3),
    by_name=st.dictionaries(texts, parts, max_size=3),
    even=st.none() | st.integers().map(lambda value: Even(2 * value)),
    small=st.integers(max_value=9),
    anything=st.none() | st.booleans() | texts,
)


@given(wholes)
def test_read_is_the_inverse_of_to_data(value: Whole) -> None:
    assert read(Whole, Document(name="again", data=to_data(value))) == value


def test_a_missing_required_field_gives_no_value() -> None:
    found, wrong = read_in_part(Pair, parse("second: {a: 1}\n", name="w.yaml"))
    assert found is None
    assert [(one.code, one.value) for one in wrong] == [("key-missing", "first")]
