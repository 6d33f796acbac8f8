# SPDX-License-Identifier: Apache-2.0
"""Tests that a setting which repeats have in common can be set, and is compared, by its name."""

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from llmb.cli.submit.options import SubmitOptions
from llmb.contract.settings import COMPARED, MAPPINGS, Settings
from llmb.contract.switches import CHOICES, NAMES
from llmb.judge.differences import differences
from llmb.measure.columns import csv_columns
from llmb.plan.find_reference import SAME
from llmb.plan.joblist_keys import Overrides, TaskEntry

SWITCHES = [name for name in COMPARED if name in NAMES]
SCALARS = [name for name in COMPARED if name not in (*MAPPINGS, *SAME, "software")]
VALUES: dict[Any, tuple[Any, Any]] = {bool: (True, False), int: (3, 5), str: ("a", "b")}


def two_values(name: str) -> tuple[Any, Any]:
    """Return two values that the setting can have."""
    kind = get_type_hints(Settings)[name]
    kinds = [part for part in get_args(kind) or (kind,) if part is not type(None)]
    return get_args(kinds[0])[:2] if get_origin(kinds[0]) is Literal else VALUES[kinds[0]]


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_is_a_key_of_job_lists_and_an_option(name: str) -> None:
    for level in (TaskEntry, Overrides):
        assert name in {own.name for own in fields(level)}
    assert name in {own.name for own in fields(SubmitOptions)} | CHOICES.keys()


@pytest.mark.parametrize("name", SCALARS)
def test_runs_that_differ_in_it_are_no_repeats_and_it_is_named(name: str) -> None:
    one, other = (Settings(**{name: value}) for value in two_values(name))
    assert one.key != other.key
    assert one.unparse()[name] != other.unparse()[name]
    assert name in {column.key for column in csv_columns(())}
    assert len(differences(one, other)) == 1
