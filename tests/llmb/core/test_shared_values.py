# SPDX-License-Identifier: Apache-2.0
"""Tests that equal data of llmb's own files share one value, and that nothing else does."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest

from llmb.core import typed
from llmb.errors import LlmbError


def positive(number: float) -> None:
    if number <= 0:
        raise ValueError(f"{number} is not above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    anything: Any = None
    size: Annotated[float, positive] = 1.0
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    name: str
    inner: Inner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    one: Number | None = None
    by_name: dict[str, Number] = field(default_factory=dict)


def read(name: str, inner: Any) -> Outer:
    return typed.read_own(Outer, Path("x.json"), {"name": name, "inner": inner})


def test_equal_data_are_one_value_and_the_files_are_not() -> None:
    first, second = (read(name, {"size": 2.0, "env": {"A": "1"}}) for name in ("a", "b"))
    assert first.inner is second.inner
    assert (first.name, second.name) == ("a", "b")
    assert first.inner == Inner(size=2.0, env={"A": "1"})


@pytest.mark.parametrize(
    "alike",
    [
        (1, 1.0, True),
        (0, False, 0.0, -0.0),
        ("1", 1),
        ([], {}),
        (None, False),
        ({"a": 1}, {"a": True}),
    ],
)
def test_what_python_calls_equal_and_json_does_not_is_kept_apart(alike: tuple[Any, ...]) -> None:
    for _ in range(2):
        found = [read("a", {"anything": one}).inner for one in alike]
        assert [repr(one.anything) for one in found if one is not None] == [
            repr(one) for one in alike
        ]


def test_too_many_different_ones_are_no_longer_shared_and_still_right() -> None:
    numbers = [*range(6000), *range(6000)]
    found = [
        typed.read_own(Numbers, Path("x.json"), {"one": {"value": number}}).one
        for number in numbers
    ]
    assert found == [Number(value=number) for number in numbers]
    data = {"by_name": {str(number): {"value": number} for number in numbers}}
    assert typed.read_own(Numbers, Path("x.json"), data).by_name == {
        str(n): Number(value=n) for n in numbers
    }


@pytest.mark.parametrize("damaged", [7, [], "x", {"size": -1}, {"size": "2"}, {"env": {"A": "\0"}}])
def test_damage_is_damage_every_time(damaged: Any) -> None:
    for _ in range(3):
        with pytest.raises(LlmbError) as caught:
            read("a", damaged)
        assert caught.value.code == "file-damaged"
        assert read("a", {"size": 2.0}).inner == Inner(size=2.0)
