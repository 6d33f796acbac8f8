# SPDX-License-Identifier: Apache-2.0
"""Compares every setting and variable of every row with NVIDIA's: equal, or one of the listed
differences.

NVIDIA's side is the function of the installed library, called in a process without llmb, with the
changes that its launch scripts make on top (record_nvidia.py).
"""

from collections.abc import Mapping
from typing import Any

import pytest

from llmb.builtin.bridge import environment

# What llmb sets otherwise, by path or name: our value, and why.
DIFFERENT = {
    "checkpoint.load": (
        "None",
        "NVIDIA's is a folder below the working folder, from which a run would continue",
    ),
}
# NVIDIA's rows that are none of ours, and what the library's own checks say.
FAULTY = {
    "0.6.0": {
        "nemotronh_56b b200 bf16 256": "(192) must be divisible",
        "nemotronh_56b gb300 bf16 256": "(192) must be divisible",
        **{
            f"qwen3_235b_a22b {gpu} {dtype} 64": "64 GPUs do not divide"
            for gpu, dtypes in (
                ("gb200", ("fp8_cs", "fp8_mx", "nvfp4")),
                ("gb300", ("bf16", "fp8_cs", "fp8_mx", "nvfp4")),
            )
            for dtype in dtypes
        },
        **{f"deepseek_v3 h100 {dtype} 64": "64 GPUs do not divide" for dtype in ("bf16", "fp8_cs")},
    }
}
# NVIDIA's variants v1 with the same settings and another batch.
OTHER_BATCHES = {"llama3_70b": 2, "llama31_405b h100": 0.5}


def superseded(version: str, record: Mapping[str, Any]) -> set[str]:
    """The variants v1 beside a v2, which is the default of NVIDIA's scripts for every GPU count.

    Of 0.3.1 those are compared that have another batch alone.
    """
    later = {tuple(label.split()[:3]) for label in record if label.endswith(" v2")}
    return {
        label
        for label in record
        if label.endswith(" v1")
        and tuple(label.split()[:3]) in later
        and not (version == "0.3.1" and label.startswith(tuple(OTHER_BATCHES)))
    }


def matched(
    version: str, ours: Mapping[str, Any], record: Mapping[str, Any], rebatch: Any, planned_at: Any
) -> dict[str, Any]:
    """Our case for each row of the record."""
    found: dict[str, Any] = {}
    for label in set(record) - superseded(version, record):
        words = label.split()
        name = " ".join(words[:4])
        case = ours.get(name) or (planned_at(version, name) if words[4:] == ["v2"] else None)
        factor = next(
            (times for name, times in OTHER_BATCHES.items() if label.startswith(name)), None
        )
        if case is not None and factor is not None and words[4:] == ["v1"]:
            case = rebatch(case, int(factor * case.gpus))
        if case is not None:
            found[label] = case
    return found


@pytest.fixture(scope="session")
def sides(
    version: str, by_version: Any, recorded: Any, rebatch: Any, planned_at: Any, build: Any
) -> dict[str, Any]:
    """Ours and NVIDIA's configuration of each row."""
    record = recorded(version)
    ours = matched(version, by_version(version), record, rebatch, planned_at)
    bases = {
        label: {
            "base": row["base"]["base"],
            "gpu": label.split()[1],
            "gpus": int(label.split()[3]),
        }
        for label, row in record.items()
    }
    recipes = {
        label: {"recipe": case.recipe, "gpu": case.gpu, "gpus": case.gpus}
        for label, case in ours.items()
    }
    return {
        "ours": build("ours", version, recipes),
        "theirs": build("theirs", version, bases),
        "record": record,
        "cases": ours,
    }


def expected(label: str, sides: Mapping[str, Any]) -> dict[str, str]:
    """NVIDIA's leaves: those of its function, with the changes of its scripts."""
    leaves = {**sides["theirs"][label]["leaves"], **sides["record"][label]["changed"]}
    return {path: value for path, value in leaves.items() if value is not None}


def differences(
    ours: Mapping[str, str], theirs: Mapping[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    """Paths with both values where they differ."""
    paths = sorted({*ours, *theirs})
    return {
        path: (ours.get(path), theirs.get(path))
        for path in paths
        if ours.get(path) != theirs.get(path)
    }


def test_every_row_of_nvidia_is_ours(
    version: str, by_version: Any, recorded: Any, rebatch: Any, planned_at: Any
) -> None:
    """No other row is missing, none is invented, and the faulty ones are none of ours."""
    record = recorded(version)
    ours = matched(version, by_version(version), record, rebatch, planned_at)
    assert set(record) - set(ours) == {*FAULTY.get(version, {}), *superseded(version, record)}
    assert {case.label for case in ours.values() if case.gpus in case.row.scales.counts} == {
        label for label in by_version(version) if not label.startswith("smoke")
    }


def test_every_setting_is_nvidias(version: str, sides: Mapping[str, Any]) -> None:
    """All leaves of all rows."""
    count = 0
    found: dict[tuple[str, str], Any] = {}
    for label, ours in sides["ours"].items():
        theirs = expected(label, sides)
        count += len(theirs)
        left = differences(ours["leaves"], theirs)
        allowed = {
            path
            for path, (value, _) in DIFFERENT.items()
            if path in left and left[path][0] == value
        }
        found |= {(label, path): pair for path, pair in left.items() if path not in allowed}
    assert not found
    assert count > 600 * len(sides["ours"])
    print(f"{version}: {len(sides['ours'])} rows, {count} leaves, {len(found)} differences")


def test_every_variable_is_nvidias(version: str, sides: Mapping[str, Any]) -> None:
    """The whole environment of every row; that of a function of 0.6 is also read from the function
    itself, but for the variables that launch options change. From 512 GPUs on some models have
    those of NVIDIA's benchmark too.
    """
    for label, ours in sides["ours"].items():
        model, gpu, dtype, gpus = label.split()[:4]
        added = environment.at_scale(model, gpu, int(gpus), dtype)
        assert ours["environment"] == {**sides["record"][label]["environment"], **added}, label
        flat = sides["theirs"][label]["environment"]
        assert bool(flat) == (version == "0.6.0")
        changed = {**flat, **sides["cases"][label].row.environment} if flat else {}
        assert changed.items() <= ours["environment"].items(), label


def test_the_library_accepts_every_row(version: str, sides: Mapping[str, Any]) -> None:
    """Its own check finds no fault in ours, and refuses the rows of NVIDIA that are not ours."""
    assert {
        label: row["invalid"] for label, row in sides["ours"].items() if row["invalid"] is not None
    } == {}
    for label, message in FAULTY.get(version, {}).items():
        assert message.lower() in str(sides["theirs"][label]["invalid"]).lower()


def test_a_missing_setting_is_seen(version: str, by_version: Any, build: Any) -> None:
    """The control: each entry of a recipe is dropped once, and the comparison or the check sees it.

    Entries that repeat what NVIDIA's function says already are no settings of their own.
    """
    rows = {}
    labels = (
        "llama3_70b gb300 bf16 64",
        "llama31_405b gb200 fp8_cs 256",
        "nemotronh_56b h100 fp8_cs 64",
    )
    for label in labels:
        case = by_version(version)[label]
        row = {"gpu": case.gpu, "gpus": case.gpus}
        rows[label] = {"recipe": case.recipe, **row}
        for name in case.recipe["set"]:
            values = {key: value for key, value in case.recipe["set"].items() if key != name}
            rows[f"{label} {name}"] = {"recipe": {**case.recipe, "set": values}, **row}
    found = build("ours", version, rows)
    seen: set[tuple[str, str]] = set()
    unseen: set[tuple[str, str]] = set()
    for key, row in found.items():
        label = next(label for label in labels if key.startswith(label))
        if key != label:
            name = key.removeprefix(f"{label} ")
            whole = found[label]["leaves"]
            (seen if "refused" in row or row["leaves"] != whole else unseen).add((label, name))
    assert len(seen) >= {"0.3.1": 60, "0.4.2": 40, "0.5.1": 40, "0.6.0": 9}[version]
    for label, name in sorted(unseen):
        # NVIDIA's function has the value already: a recipe with another one would differ.
        assert name in by_version(version)[label].recipe["set"]
    print(
        f"{version}: {len(seen)} dropped entries seen, {len(unseen)} repeat the value of NVIDIA's"
        " function"
    )


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such setting": ({"overrides": {"optimizer.lrr": 0.1}}, "'lr'"),
    "no such part": ({"overrides": {"modle.num_layers": 4}}, "'model'"),
    "no such choice": ({"overrides": {"model.cuda_graph_impl": "locl"}}, "'local'"),
    "no number": ({"overrides": {"model.num_layers": "many"}}, "int"),
    "no such function": (
        {"base": "megatron.bridge.recipes.llama:llama3_9b_pretrain_config"},
        "'llama3_8b_pretrain_config'",
    ),
    "another release": ({"libraries": {"megatron-bridge": "0.2.0"}}, "0.2.0"),
}


def test_what_the_library_lacks_is_refused(version: str, by_version: Any, build: Any) -> None:
    """With the nearest word."""
    case = by_version(version)["llama3_8b h100 bf16 8"]
    rows = {
        name: {"recipe": {**case.recipe, **changes}, "gpu": "h100", "gpus": 8}
        for name, (changes, _) in REFUSED.items()
    }
    found = build("ours", version, rows)
    for name, (_, near) in REFUSED.items():
        assert near in found[name]["refused"], name
