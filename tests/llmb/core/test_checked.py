# SPDX-License-Identifier: Apache-2.0
"""Tests of the hints for values of a wrong type in fields that plugins fill."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb import api
from llmb.core.checked import check_types
from llmb.errors import KeyFaultError

WRONG: Any = api  # not checked by types
PROGRAM = api.Program(argv=("true",))
STEPS = [api.Step(iteration=number, step_time=1.0) for number in range(50)]


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: WRONG.Program(argv="python x.py"), "one text for each word: ('python', 'x.py')"),
        (
            lambda: WRONG.ParseSpec(needle="x", must_have="finished OK"),
            "a tuple of one text has a comma: ('finished OK',)",
        ),
        (
            lambda: WRONG.Failure(kind="x", text="licence expired"),
            "a tuple of one text has a comma: ('licence expired',)",
        ),
        (lambda: WRONG.Command(program=PROGRAM, environment=None), "{} for none"),
        (
            lambda: WRONG.Command(program=PROGRAM, environment={"B": "b", "A": 5}),
            "its values are texts: {'A': '5'}",
        ),
        (
            lambda: WRONG.Command(program=PROGRAM, environment={"A": None}),
            "omit 'A', or give it a text",
        ),
        (lambda: WRONG.Command(program=PROGRAM, environment={5: "b"}), "its keys are texts: '5'"),
        (lambda: WRONG.Command(program=PROGRAM, environment="A=5"), None),
        (lambda: check_types(WRONG.Samples(steps=STEPS)), "tuple(...)"),
        (lambda: check_types(WRONG.Samples(steps=[1, 2])), None),
        (lambda: WRONG.Image(reference=Path("x/y:1")), "str(...)"),
        (lambda: WRONG.Image(reference=None), None),
    ],
)
def test_the_hint_makes_the_value_right(make: Callable[[], Any], hint: str | None) -> None:
    with pytest.raises(KeyFaultError) as caught:
        make()
    assert (caught.value.code, caught.value.hint) == ("value-type", hint)
    assert len(str(caught.value)) < 200
