# SPDX-License-Identifier: Apache-2.0
"""Tests of the names that a cluster type says to hide in archives."""

from dataclasses import dataclass
from typing import Any

import pytest

from llmb.contract.cluster_type import ClusterType
from llmb.contract.schema import ClusterConfig
from llmb.errors import LlmbError
from llmb.show.archive.names import sites_of


@dataclass(frozen=True)
class MoonConfig:
    base: str = "tranquility"


def config(site_names: Any) -> ClusterConfig:
    kind = ClusterType(
        name="moon", create="m:c", schema=MoonConfig, source="llmb-moon:m", site_names=site_names
    )
    return ClusterConfig(
        cluster_type="moon", gpu_type="cpu", kind=kind, sections={"moon": MoonConfig()}
    )


def test_the_names_of_a_section_are_replaced() -> None:
    named = sites_of(config(lambda section: {"base": [section.base]}), [])
    assert named["tranquility"] == "base1"


def test_a_type_that_fails_makes_no_archive_with_its_names() -> None:
    with pytest.raises(LlmbError, match="llmb-moon:m"):
        sites_of(config(lambda section: section.moon), [])
