# SPDX-License-Identifier: Apache-2.0
"""Tests of the entries of job lists: which settings they expand to, and what overrides them."""

from typing import Any

import pytest

from llmb.contract.settings import NOTHING, Settings
from llmb_testing.entries import job_entry


def test_every_combination_once_and_the_last_value_changes_first() -> None:
    entry = job_entry(
        "w",
        "s",
        dtypes=("fp8", "bf16"),
        scales=(8, 16),
        params={"tp": (1, 2)},
        fp8="current",
        env={"A": "1"},
    )
    found = list(entry.expand())
    assert [(own.dtype, own.scale, own.tp) for own in found] == [
        (dtype, scale, tp) for dtype in ("fp8", "bf16") for scale in (8, 16) for tp in (1, 2)
    ]
    assert {(own.workload, own.model_size, own.fp8, own.env["A"]) for own in found} == {
        ("w", "s", "current", "1")
    }


def test_values_of_parameters_and_paths_are_swept_too() -> None:
    entry = job_entry(
        "w",
        scales=(8,),
        parameters={"message": ("1M", "2M"), "algorithm": ("ring",)},
        dotted={"optimizer.lr": (1e-4, None)},
    )
    assert [(own.parameters, own.dotted) for own in entry.expand()] == [
        ({"message": message, "algorithm": "ring"}, {"optimizer.lr": lr})
        for message in ("1M", "2M")
        for lr in (1e-4, None)
    ]


def test_values_that_are_not_given_are_as_if_they_were_not_named() -> None:
    entry = job_entry("w", scales=(8,), params={"tp": ()}, dtype="fp8")
    assert (entry.dtypes, entry.scales, entry.values("tp")) == (("fp8",), (8,), ())
    assert [(own.dtype, own.tp) for own in entry.expand()] == [("fp8", None)]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"tp": 8}, {"tp": 8, "gbs": 4}),
        ({"gbs": 64, "nccl_trace": False}, {"gbs": 64, "nccl_trace": False}),
        ({"env": {"B": "2"}}, {"env": {"A": "1", "B": "2"}}),
        ({"parameters": {"message": "4M"}}, {"parameters": {"message": "4M"}}),
        ({"dotted": {"a.b": 3, "a.c": 4}}, {"dotted": {"a.b": 3, "a.c": 4}}),
        ({"tokenizer": "hub"}, {"tokenizer": "hub", "nccl_trace": True, "gbs": 4}),
        ({"framework": "bridge", "image": "x:1"}, {"framework": "bridge", "image": "x:1"}),
    ],
)
def test_the_command_line_overrides_settings_and_lists(
    overrides: dict[str, Any], expected: dict[str, Any]
) -> None:
    entry = job_entry(
        "w",
        scales=(8,),
        params={"tp": (1, 2)} if "tp" in overrides else {},
        gbs=4,
        nccl_trace=True,
        env={"A": "1"},
        parameters={"message": ("1M", "2M")} if "parameters" in overrides else {},
        dotted={"a.b": (1, 2)} if "dotted" in overrides else {},
    )
    (found,) = entry.overridden(Settings(**overrides)).expand()
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_parameter_of_the_command_line_has_its_place() -> None:
    entry = job_entry("w", key_places={"message": "jobs.yaml:3", "tp": "jobs.yaml:4"})
    found = entry.overridden(Settings(parameters={"message": "4M"}))
    assert found.key_places == {"message": "--set message=4M", "tp": "jobs.yaml:4"}
    assert entry.overridden(NOTHING) == entry
