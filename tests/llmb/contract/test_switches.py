# SPDX-License-Identifier: Apache-2.0
"""Tests of switches as values: layers, ranks, clocks, mounts; and that each can be set
everywhere.
"""

import re
from dataclasses import fields

import pytest

from llmb.cli.submit import single
from llmb.contract.sbatch import OWN_OPTIONS
from llmb.contract.switches import (
    CHOICES,
    NAMES,
    NO_SWITCHES,
    PARAMS,
    Switches,
    parse_clock,
    parse_mount,
    rank_ranges,
)
from llmb.plan.joblist_keys import Keys
from llmb_exemplar import llmb_variables


def test_details_of_a_profile_are_of_profiled_jobs() -> None:
    assert not NO_SWITCHES.sets_profile
    assert Switches(profile_start=0).sets_profile


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("0-7", [(0, 7)]),
        ("3", [(3, 3)]),
        ("0, 8,16 - 23", [(0, 0), (8, 8), (16, 23)]),
        ("all", [(0, None)]),
    ],
)
def test_ranks(text: str, ranges: list[tuple[int, int | None]]) -> None:
    assert rank_ranges(text) == ranges


@pytest.mark.parametrize("text", ["", "7-0", "-1", "0-", "a", "0;7", "0,,7"])
def test_what_are_no_ranks(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"'{text}'")):
        rank_ranges(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("00:30:00", 1800), ("1:00:01", 3601), ("100:00:00", 360000)]
)
def test_a_time_limit(text: str, seconds: int) -> None:
    assert parse_clock(text) == seconds


@pytest.mark.parametrize(
    "text", ["30", "30:00", "00:00:00", "00:60:00", "00:30", "1-00:00:00", "", "00:30:00.5"]
)
def test_what_is_no_time_limit(text: str) -> None:
    with pytest.raises(ValueError, match="HH:MM:SS"):
        parse_clock(text)


@pytest.mark.parametrize(
    ("text", "mount"),
    [("/a", "/a:/a"), ("/a:/b", "/a:/b"), ("/a:/b:ro", "/a:/b:ro"), (" /a:/b ", "/a:/b")],
)
def test_a_mount(text: str, mount: str) -> None:
    assert parse_mount(text) == mount


@pytest.mark.parametrize("text", ["", "a:/b", "/a:b", "/a:/b:ro:x", "/a,/b"])
def test_what_is_no_mount(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"'{text}'")):
        parse_mount(text)


_OTHER = {"max_steps", "gbs", "framework", "release", *OWN_OPTIONS}


def test_every_switch_has_a_key_and_an_option() -> None:
    """A missing one could not be set there."""
    keys = {own.name for own in fields(Keys)} - _OTHER
    options = {parameter.name for parameter in single.command.params}
    assert keys == set(NAMES)
    assert {*NAMES, *_OTHER} <= options | set(CHOICES)
    assert set(CHOICES) <= keys


def test_every_variable_of_the_direct_method_has_an_option() -> None:
    options = {parameter.name for parameter in single.command.params}
    special = {"nodes", "cluster_type", "fp8_recipe", "slurm_args"}  # read by hand
    read = {own.sets for own in llmb_variables() if own.sets and not own.of_config}
    assert read - special - set(PARAMS) <= options
