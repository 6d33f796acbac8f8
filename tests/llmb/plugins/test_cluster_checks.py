# SPDX-License-Identifier: Apache-2.0
"""Cluster types of plugins when they are loaded, and their sections in cluster_config.yaml."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.cluster_type import ClusterQuestion, ClusterTraits, ClusterType
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.core import yamlfile
from llmb.errors import InputFaults
from llmb.plan.config_layers import load_config, with_slurm_args
from llmb.plan.read_config import read_config
from llmb.plugins.cluster_checks import ANSWER_KEYS, with_source
from llmb_installer.answers.schema import Answers
from llmb_installer.cluster_types import all_types

SOURCE = "llmb-moon:moon"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoonConfig:
    """A section with a required key."""

    base: str
    landers: int = 1


MOON = ClusterType(name="moon", create="moon:create", schema=MoonConfig, source=SOURCE)
BASE = ClusterQuestion(key="base", text="Base:")


def test_a_right_type_knows_its_plugin() -> None:
    kind = with_source(replace(MOON, source=""), SOURCE)
    assert (kind.source, kind.key, kind.required) == (SOURCE, "moon", ("gpu_type", "moon.base"))


def test_llmbs_own_types_pass_the_same_check() -> None:
    for kind in all_types().values():
        name = f"{kind.name}2"
        assert with_source(replace(kind, name=name, section=kind.key or ""), SOURCE).name == name


WRONG: dict[str, Any] = {
    "none": None,
    "text": "moon",
    "name in capitals": replace(MOON, name="Moon"),
    "name with a slash": replace(MOON, name="../moon"),
    "create": replace(MOON, create=None),  # type: ignore[arg-type]
    "create without a function": replace(MOON, create="moon"),
    "schema": replace(MOON, schema=dict),
    "section of llmb": replace(MOON, section="slurm"),
    "section of another key": replace(MOON, section="environment"),
    "section of the answers": replace(MOON, section="versions"),
    "questions": replace(MOON, questions=[BASE]),  # type: ignore[arg-type]
    "question": replace(MOON, questions=("base",)),  # type: ignore[arg-type]
    "question about nothing": replace(MOON, questions=(replace(BASE, key="bass"),)),
    "questions without a section": replace(MOON, schema=None, questions=(BASE,)),
    "traits": replace(MOON, traits=lambda section: None),  # type: ignore[arg-type, return-value]
    "traits that fail": replace(MOON, traits=lambda section: section.base),
    "traits with a wrong word": replace(MOON, traits=ClusterTraits(runs_in="image")),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("kind", WRONG.values(), ids=WRONG)
def test_a_wrong_type_is_refused(kind: Any) -> None:
    """The loader skips its plugin with the reason."""
    with pytest.raises((TypeError, ValueError, AttributeError)):
        with_source(kind, SOURCE)


def test_slurms_section_can_be_used_by_another_type() -> None:
    kind = with_source(replace(MOON, section="slurm", schema=SlurmConfig), SOURCE)
    text = "cluster_type: moon\ngpu_type: h100\nslurm: {account: a}\n"
    config = read_config(yamlfile.parse(text, name="x"), cluster_types=lambda: {"moon": kind})
    assert (config.slurm, config.section) == (SlurmConfig(account="a"), SlurmConfig(account="a"))


def test_the_keys_of_answers_are_reserved() -> None:
    own = {field.name for field in fields(ClusterConfig)} | {"install"}
    assert {field.name for field in fields(Answers)} - own == ANSWER_KEYS


def read(text: str, types: Mapping[str, ClusterType] | None = None) -> ClusterConfig:
    document = yamlfile.parse(f"cluster_type: moon\ngpu_type: h100\n{text}", name="c.yaml")
    return read_config(
        document, cluster_types=lambda: types if types is not None else {"moon": MOON}
    )


def test_its_section_is_read_by_its_schema() -> None:
    config = read("moon:\n  base: tranquility\n")
    assert config.section == MoonConfig(base="tranquility")
    assert (config.of_type, config.traits) == (MOON, ClusterTraits())


def test_its_traits_say_what_to_do_instead_of_an_option_of_sbatch() -> None:
    own = ClusterTraits(instead={"partition": "name a crater", "others": "ask the base"})
    for traits, hints in (
        (own, ["name a crater", "ask the base"]),
        (ClusterTraits(), ["remove it", "remove it"]),
    ):
        config = read(
            "moon: {base: x}\n", {"moon": with_source(replace(MOON, traits=traits), SOURCE)}
        )
        with pytest.raises(InputFaults) as caught:
            with_slurm_args(config, {"partition": "a", "qos": "b"})
        assert [(fault.key, fault.hint) for fault in caught.value.faults] == [
            ("--partition", hints[0]),
            ("--qos", hints[1]),
        ]


@pytest.mark.parametrize(
    ("text", "place", "code", "key"),
    [
        ("moon:\n  base: x\n  lander: 2\n", "c.yaml:5", "key-unknown", "moon.lander"),
        ("moon:\n  base: x\n  landers: many\n", "c.yaml:5", "value-type", "moon.landers"),
        ("moon:\n  landers: 2\n", "c.yaml:3", "key-missing", "moon"),
        ("moon: x\n", "c.yaml:3", "value-type", "moon"),
        ("", "c.yaml", "key-missing", "moon.base"),
    ],
)
def test_faults_of_its_section_have_file_and_line(
    text: str, place: str, code: str, key: str
) -> None:
    with pytest.raises(InputFaults) as caught:
        read(text)
    (fault,) = caught.value.faults
    assert (fault.place, fault.code, fault.key) == (place, code, key)


def test_all_faults_of_a_file_at_once() -> None:
    with pytest.raises(InputFaults) as caught:
        read("moon: {base: x, lander: 2}\nexperiments: /x\n")
    assert {fault.key for fault in caught.value.faults} == {"moon.lander", "experiments"}


def test_without_its_plugin_the_type_is_unknown() -> None:
    with pytest.raises(InputFaults) as caught:
        read("moon: {base: x}\n", {})
    assert [fault.code for fault in caught.value.faults] == ["cluster-type-unknown"]


def test_a_schema_that_fails_names_its_plugin() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Broken:
        base: str

        def __post_init__(self) -> None:
            raise ZeroDivisionError

    with pytest.raises(InputFaults) as caught:
        read("moon: {base: x}\n", {"moon": replace(MOON, schema=Broken)})
    (fault,) = caught.value.faults
    assert (fault.code, fault.place, fault.value) == ("plugin-failed", "c.yaml:3", SOURCE)


def test_the_layers_above_the_file_keep_it(tmp_path: Path, home: Callable[[], None]) -> None:
    (tmp_path / "cluster_config.yaml").write_text(
        "cluster_type: moon\ngpu_type: h100\nmoon: {base: x}\n"
    )
    config, notes = load_config(
        tmp_path, {"SBATCH_ACCOUNT": "a"}, cluster_types=lambda: {"moon": MOON}
    )
    assert (config.section, config.llmb_install, notes) == (MoonConfig(base="x"), tmp_path, [])
