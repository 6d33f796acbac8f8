# SPDX-License-Identifier: Apache-2.0
"""Tests that the name of an experiment reads back to what was submitted, whatever a workload's own
parameters are.
"""

import itertools
from typing import Any

import pytest
from hypothesis import assume, given, settings, strategies as st

from llmb.contract.job import Job
from llmb.contract.schema import ClusterConfig
from llmb.contract.spec import Workload
from llmb.core import typed
from llmb.core.yamlfile import Document
from llmb.errors import InputFaults
from llmb.measure.describe_log import dtypes_of, of_name
from llmb.plan.plan import make_plan
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

MODEL = {
    "architecture": "llama",
    "layers": 2,
    "hidden": 8,
    "ffn": 8,
    "heads": 2,
    "kv_groups": 2,
    "vocab": 8,
}
BARE = {"gpu": "any", "dtype": ["fp32", "fp8"], "scales": [1, 2, 4]}
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,6}", fullmatch=True)
VALUES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,7}", fullmatch=True)
HARD_NAMES = st.sampled_from(
    ["a", "alpha", "a_b", "b", "t", "l", "ns", "fp", "gpu", "x_", "_", "hu", "tp_", "A"]
)
HARD_VALUES = st.sampled_from(
    [
        "p2",
        "ys",
        "oad",
        "x-gpus4",
        "x.tp2",
        "1_b2",
        "pretrain",
        "fp8",
        "Foo",
        "fp32",
        "b",
        "1.out",
        "7+mbs9",
        "s4",
        "_",
    ]
)


def workload(parameters: dict[str, Any], *, trains: bool = False) -> Workload:
    trained = {"model": {**MODEL, "seq_length": 8}, "rows": [{**BARE, "mbs": 1, "gbs": 4}]}
    size = trained if trains else {"rows": [BARE], "whole_nodes": False}
    metrics = {} if trains else {"metrics": [{"name": "lat"}]}
    base = {
        "key": "odd",
        "title": "t",
        "default_size": "a",
        "default_dtype": "fp32",
        "max_steps": 6,
    }
    return typed.read(
        Workload,
        Document(
            name="w.yaml", data={**base, **metrics, "sizes": {"a": size}, "parameters": parameters}
        ),
    )


def submitted(own: Workload, values: dict[str, str], scale: int = 2, **how: Any) -> Job | None:
    """The job with these values, None where the submission refuses them."""
    given = {name: (value,) for name, value in values.items()}
    request = job_entry(
        workload="odd", size="a", dtypes=("fp32",), scales=(scale,), parameters=given, **how
    )
    plan = make_plan(
        [request],
        {"odd": own},
        ClusterConfig(cluster_type="local", gpu_type="cpu", kind=all_types()["local"]),
    )
    return plan.jobs[0] if plan.jobs else None


def read_back(own: Workload, name: str) -> dict[str, Any]:
    found = of_name(name, {"odd": own}, dtypes_of({"odd": own}))
    kept = (
        "model_size",
        "dtype",
        "scale",
        "tp",
        "mbs",
        "gbs",
        "num_layers",
        "profile",
        "loads",
        "framework",
        "parameters",
    )
    return {key: value for key in kept if (value := getattr(found, key))}


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        NAMES | HARD_NAMES, st.tuples(VALUES | HARD_VALUES, st.booleans()), min_size=1, max_size=3
    ),
    st.dictionaries(st.integers(0, 2), VALUES | HARD_VALUES),
    st.booleans(),
)
def test_every_accepted_parameter_reads_back(
    declared: dict[str, tuple[str, bool]], changed: dict[int, str], trains: bool
) -> None:
    parameters = {
        name: {"default": value, **({"choices": [value, "z"]} if chosen else {})}
        for name, (value, chosen) in declared.items()
    }
    try:
        own = workload(parameters, trains=trains)
    except InputFaults:
        assume(False)
        return
    values = {
        name: changed[at]
        for at, name in enumerate(parameters)
        if at in changed and not declared[name][1]
    }
    job = submitted(own, values)
    assume(job is not None)
    assert job is not None
    of_training = {"tp": 1, "mbs": 1, "gbs": 4} if trains else {}
    expected = {
        "model_size": "a",
        "dtype": "fp32",
        "scale": 2,
        **of_training,
        "parameters": dict(job.parameters),
    }
    for end in ("", "_1795391878", "_389757_0"):
        assert read_back(own, job.experiment_name + end) == expected


def test_values_keep_their_case_and_choices_their_underscores() -> None:
    own = workload(
        {
            "alpha": {"default": "3"},
            "name": {"default": "Foo"},
            "kind": {"default": "a", "choices": ["a", "a_b"]},
        }
    )
    job = submitted(own, {"alpha": "7", "name": "FooBar", "kind": "a_b"})
    assert job is not None
    assert job.experiment_name == "odd_a_fp32_gpus2_alpha7_nameFooBar_kinda_b"
    assert read_back(own, job.experiment_name)["parameters"] == {
        "alpha": "7",
        "name": "FooBar",
        "kind": "a_b",
    }
    assert read_back(own, job.experiment_name.lower())["parameters"] == {
        "alpha": "7",
        "name": "foobar",
        "kind": "a_b",
    }


@pytest.mark.parametrize("value", ["Foo_Bar", "a/b", "-x", "a b", "_x", ""])
def test_values_that_no_name_could_tell_are_refused(value: str) -> None:
    assert submitted(workload({"name": {"default": "foo"}}), {"name": value}) is None


def test_a_value_that_reads_as_a_setting_is_refused_and_the_suffixes_of_llmb_are_read() -> None:
    for name, value in (
        ("t", "p2"),
        ("ns", "ys"),
        ("l", "oad"),
        ("gpu", "s8"),
        ("laye", "rs2"),
        ("step", "s9"),
    ):
        assert submitted(workload({name: {"default": "x"}}), {name: value}) is None, (name, value)
    own = workload({"alpha": {"default": "3"}}, trains=True)
    job = submitted(own, {"alpha": "9"}, profile=True)
    assert job is not None
    assert read_back(own, job.experiment_name) == {
        **{"model_size": "a", "dtype": "fp32", "scale": 2, "tp": 1, "mbs": 1, "gbs": 4},
        **{"profile": True, "parameters": {"alpha": "9"}},
    }


def test_a_name_with_some_of_the_parameters_in_any_order() -> None:
    own = workload({name: {"default": "1"} for name in ("a", "alpha", "a_b")})
    for words in itertools.permutations(("_a2", "_alpha3", "_a_b4")):
        found = read_back(own, f"odd_a_fp32_gpus2{''.join(words)}")
        assert found["parameters"] == {"a": "2", "alpha": "3", "a_b": "4"}, words
    assert read_back(own, "odd_a_fp32_gpus2_alpha3")["parameters"] == {"alpha": "3"}
