# SPDX-License-Identifier: Apache-2.0
"""Compares every setting of every row with NVIDIA's scripts: equal, or one of the listed
differences.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from llmb.core import typed, yamlfile

LIST = Path(__file__).with_name("differences.yaml")
ABSENT = "absent"
Leaves = Mapping[str, Any]
Rows = Mapping[str, tuple[Leaves, Leaves]]  # by label, ours and NVIDIA's


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Rows by patterns, settings by pattern with our value and NVIDIA's, and why."""

    rows: tuple[str, ...]
    settings: dict[str, Any]
    reason: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """differences.yaml."""

    differences: tuple[Difference, ...]


def listed() -> tuple[Difference, ...]:
    """The list of differences."""
    return typed.read(Listed, yamlfile.load(LIST)).differences


def faults(rows: Rows, differences: tuple[Difference, ...]) -> list[str]:
    """Differences that are not listed, and listed ones that do not exist."""
    open_ = {
        (label, name): (ours.get(name, ABSENT), theirs.get(name, ABSENT))
        for label, (ours, theirs) in rows.items()
        for name in ours.keys() | theirs.keys()
        if ours.get(name, ABSENT) != theirs.get(name, ABSENT)
    }
    found = []
    for one in differences:
        for row in one.rows:
            labels = [label for label in rows if fnmatchcase(label, row)]
            found += [] if labels else [f"no row is named {row}"]
            for (pattern, wanted), label in itertools.product(one.settings.items(), labels):
                meant = [
                    key
                    for key, pair in open_.items()
                    if key[0] == label and _is_meant(key[1], pair, pattern, wanted)
                ]
                found += (
                    []
                    if meant
                    else [
                        f"{label}: {pattern} does not differ as listed ({wanted[0]}, {wanted[1]})"
                    ]
                )
                for key in meant:
                    del open_[key]
    found += [
        f"{label}: {name} is {ours}, NVIDIA's {theirs}"
        for (label, name), (ours, theirs) in open_.items()
    ]
    return sorted(found)


def _is_meant(name: str, pair: tuple[Any, Any], pattern: str, wanted: list[Any]) -> bool:
    """Whether an entry lists a setting with our value and NVIDIA's."""
    return fnmatchcase(name, pattern) and all(
        value == one or (one == "*" and value != ABSENT)
        for value, one in zip(pair, wanted, strict=True)
    )


@pytest.fixture(scope="module")
def rows(built: dict[str, Any], cases_by_label: Mapping[str, Any]) -> Rows:
    """All rows: the leaves of the configuration, and below `environment` the variables of the job
    script.
    """
    return {
        label: (
            {
                **row["ours"],
                **_below(cases_by_label[label].set_in_rank | cases_by_label[label].exported),
            },
            {**row["theirs"], **_below(row["executor"])},
        )
        for label, row in built["compared"].items()
    }


def _below(variables: Mapping[str, str]) -> dict[str, str]:
    return {f"environment.{name}": value for name, value in variables.items()}


def test_every_row_is_compared(rows: Rows) -> None:
    own = ("nemotronh ", "llama3.1 405b-proxy ", "nemotron4 340b a100 ")
    assert len(rows) == 150
    # NVIDIA's wheel has scripts of these; the proxy and A100 are compared with the script of the
    # same model.
    assert len([label for label in rows if not label.startswith(own)]) == 122
    for ours, theirs in rows.values():
        assert min(len(ours), len(theirs)) > 400
        assert {"environment.NVTE_FUSED_ATTN", "environment.numactl"} <= ours.keys() & theirs.keys()


def test_what_differs_from_nvidias_scripts_is_listed(rows: Rows) -> None:
    if reported := faults(rows, listed()):
        total = f"{len(reported)} in total; add each intended difference to {LIST}"
        pytest.fail("\n".join([*reported[:40], total]), False)


def _without_one(differences: tuple[Difference, ...]) -> Iterator[tuple[Difference, ...]]:
    for number, one in enumerate(differences):
        for name in one.settings:
            left = {other: values for other, values in one.settings.items() if other != name}
            yield (*differences[:number], replace(one, settings=left), *differences[number + 1 :])


def test_a_difference_that_is_removed_from_the_list_is_reported(rows: Rows) -> None:
    for left in _without_one(listed()):
        reported = faults(rows, left)
        assert reported
        assert all("NVIDIA's" in line for line in reported)


@pytest.mark.parametrize(
    ("label", "name", "change"),
    [
        (
            "nemotron4 15b h100 bf16 64 25.04",
            "trainer.plugins.grad_reduce_in_fp32",
            lambda value: not value,
        ),
        (
            "llama3.1 70b h100 fp8 64 25.04",
            "trainer.callbacks.GarbageCollectionCallback._target_",
            lambda _: ABSENT,
        ),
        ("llama3.1 8b h100 fp8 8 25.04", "model.config.init_method_std", lambda value: value / 2),
        ("nemotronh 56b h100 fp8 32 25.05", "environment.NVTE_FUSED_ATTN", lambda _: "1"),
    ],
)
def test_a_wrong_setting_is_reported(
    rows: Rows, label: str, name: str, change: Callable[[Any], Any]
) -> None:
    ours, theirs = rows[label]
    reported = faults({**rows, label: ({**ours, name: change(ours[name])}, theirs)}, listed())
    assert any(line.startswith(f"{label}: {name} ") for line in reported)


def test_an_entry_that_no_row_needs_is_reported(rows: Rows) -> None:
    one = Difference(
        rows=("nemotron4 *",), settings={"model.config.num_layers": [32, 33]}, reason="", source=""
    )
    gone = replace(one, rows=("nemotron5 *",))
    assert len(faults(rows, (*listed(), one))) == len(
        [label for label in rows if label.startswith("nemotron4 ")]
    )
    (fault,) = faults(rows, (*listed(), gone))
    assert "nemotron5 *" in fault
