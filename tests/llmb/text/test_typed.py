# SPDX-License-Identifier: Apache-2.0
"""Tests that data becomes typed values, and that everything wrong with it is told at once with place and fix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmb.errors import Fault, InputFaults, UsageError, describe
from llmb.text.typed import KeyFaultError, read, read_in_part, to_data
from llmb.text.yamlfile import Document, parse

EMPTY = "write '' for an empty text, or leave it out"
PLAIN = "write {} if that is meant, else the number without a leading zero or a colon"


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
        ("title: 25.10", Whole(title="25.10")),  # not 25.1: the text counts where text is meant
        ("title: 0x10", Whole(title="0x10")),
        ("ratio: 2", Whole(ratio=2.0)),
        ("ratio: 1e-3", Whole(ratio=0.001)),  # text to YAML 1.1, which wants 1.0e-3
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
        ("parts: [{name: a}, {name: b, count: 2}]", Whole(parts=(Part(name="a"), Part(name="b", count=2)))),
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
def test_what_is_right_is_read(text: str, expected: Whole) -> None:
    assert whole(text) == expected


def test_a_path_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert whole("where: ~/x").where == Path("/home/me/x")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("tilte: x", "tilte: 'tilte' is not a key here", "did you mean 'title'?"),
        ("part: {}", "part: 'name' is missing", None),
        ("part: {name: a, cuont: 1}", "part.cuont: 'cuont' is not a key here", "did you mean 'count'?"),
        ("part: [a]", "part: must be a mapping with the keys name, count", None),
        ("limit: x", "limit: must be a whole number, not 'x'", None),
        ("limit: 0128", "limit: must be a whole number, not '0128'", "write 128"),
        ("limit: 1e2", "limit: must be a whole number, not '1e2'", "write 100"),
        ("limit: 1e-2", "limit: must be a whole number, not '1e-2'", None),
        ("limit: 0100", "limit: '0100' is to YAML the number 64", PLAIN.format(64)),
        ("limit: 2:08", "limit: '2:08' is to YAML the number 128", PLAIN.format(128)),
        ("ratio: 1:30.5", "ratio: '1:30.5' is to YAML the number 90.5", PLAIN.format(90.5)),
        ("even: 010", "even: '010' is to YAML the number 8", PLAIN.format(8)),
        ("limit: 1.5", "limit: must be a whole number, not 1.5", None),
        ("limit: true", "limit: must be a whole number, not True", None),
        ("ratio: fast", "ratio: must be a number, not 'fast'", None),
        ("ratio: false", "ratio: must be a number, not False", None),
        ("ratio: null", "ratio: must be a number, not nothing", None),
        ("strict: 1", "strict: must be true or false, not 1", None),
        ("strict: 'yes'", "strict: must be true or false, not 'yes'", None),
        ("title: no", "title: must be text, not False", "put it in quotes"),
        ("title:", "title: must be text, not nothing", EMPTY),
        ("title: [a]", "title: must be text, not ['a']", None),
        ("title: 2025-01-31", "title: must be text, not datetime.date(2025, 1, 31)", "put it in quotes"),
        ("where: 3", "where: must be a path, not 3", None),
        ("where: ''", "where: must be a path, not ''", None),
        ("kind: slrum", "kind: 'slrum' is not one of slurm, local", "did you mean 'slurm'?"),
        ("kind: [slurm]", "kind: '['slurm']' is not one of slurm, local", "did you mean 'slurm'?"),
        ("names: [a, null]", "names.1: must be text, not nothing", EMPTY),
        ("names: {a: b}", "names: must be text, not {'a': 'b'}", None),
        ("env: [A]", "env: must be a mapping of names to values", None),
        ("env:\n  A:", "env.A: must be text, not nothing", EMPTY),
        ("env: {no: x}", "env.False: 'False' must be a name", "put it in quotes"),
        ("env: {25.10: x}", "env.25.1: '25.1' must be a name", "put it in quotes"),
        ("even: 3", "even: 3 is not even", None),
        ("small: 10", "small: 10 is not below 10", None),
        ("small: x", "small: must be a whole number, not 'x'", None),
        ("part: {name: none}", "part: a part 'none' has no count, not 1", None),
    ],
)
def test_what_is_wrong_is_told_with_its_cure(text: str, message: str, hint: str | None) -> None:
    place = f"w.yaml:{len(text.splitlines())}"
    assert fault(text) == Fault(place=place, message=message, hint=hint)


@pytest.mark.parametrize("text", ["- a\n", "just text\n", "3\n"])
def test_a_document_that_is_no_mapping(text: str) -> None:
    assert "must be a mapping with the keys title, ratio" in fault(text).message


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


def test_every_fault_is_told_at_once_each_at_its_line() -> None:
    found = [(one.place, one.message) for one in faults(NESTED)]
    assert sorted(found, key=lambda one: int(one[0].rpartition(":")[2])) == [
        ("w.yaml:4", "parts.1.nmae: 'nmae' is not a key here"),
        ("w.yaml:4", "parts.1: 'name' is missing"),
        ("w.yaml:5", "parts.1.count: must be a whole number, not 'many'"),
        ("w.yaml:9", "by_name.first.count: must be a whole number, not 1.5"),
        ("w.yaml:11", "env.B: must be text, not False"),
    ]


def test_faults_are_an_input_error_and_print_one_a_line_with_hints() -> None:
    with pytest.raises(UsageError) as caught:
        whole("tilte: x\nlimit: x\n")
    assert caught.value.exit_code == 2
    assert describe(caught.value).splitlines() == [
        "error: w.yaml:1: tilte: 'tilte' is not a key here",
        "hint: did you mean 'title'?",
        "error: w.yaml:2: limit: must be a whole number, not 'x'",
    ]


def test_a_part_of_a_document_is_read_with_its_own_places() -> None:
    document = parse("a:\n  b: {name: x}\n  c: {nmae: x}\n", name="w.yaml")
    assert read(Part, document, ("a", "b")) == Part(name="x")
    with pytest.raises(InputFaults, match=r"w\.yaml:3: a\.c\.nmae: 'nmae' is not a key here"):
        read(Part, document, ("a", "c"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    first: int
    second: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, value in self.second.items():
            if value < self.first:
                raise KeyFaultError(f"{value} is below the first", "second", key, hint="take more")


def test_a_check_between_fields_can_point_to_the_key_that_is_wrong() -> None:
    with pytest.raises(InputFaults) as caught:
        read(Pair, parse("first: 2\nsecond:\n  a: 3\n  b: 1\n", name="w.yaml"))
    assert caught.value.faults == [Fault(place="w.yaml:4", message="second.b: 1 is below the first", hint="take more")]


def test_what_is_right_can_be_had_beside_the_faults() -> None:
    found, wrong = read_in_part(Whole, parse("title: x\nlimit: y\n", name="w.yaml"))
    assert found == Whole(title="x")
    assert [one.place for one in wrong] == ["w.yaml:2"]


def test_nothing_is_had_where_a_field_without_default_is_wrong() -> None:
    found, wrong = read_in_part(Pair, parse("first: x\n", name="w.yaml"))
    assert found is None
    assert [one.message for one in wrong] == ["first: must be a whole number, not 'x'"]


def test_data_without_lines_is_told_by_its_name() -> None:
    with pytest.raises(InputFaults, match=r"^job\.json: limit: must be a whole number, not 'x'$"):
        read(Whole, Document(name="job.json", data={"limit": "x"}))


def test_plain_data_of_a_value() -> None:
    value = Whole(where=Path("/a"), parts=(Part(name="a"),), env={"A": "x"}, even=Even(2))
    written = to_data(value)
    assert written["where"] == "/a"
    assert written["parts"] == [{"name": "a", "count": 1}]
    assert written["even"] == 2


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
def test_reading_undoes_to_data(value: Whole) -> None:
    assert read(Whole, Document(name="again", data=to_data(value))) == value


def test_nothing_is_had_where_a_field_without_default_is_missing() -> None:
    found, wrong = read_in_part(Pair, parse("second: {a: 1}\n", name="w.yaml"))
    assert found is None
    assert [one.message for one in wrong] == ["'first' is missing"]
