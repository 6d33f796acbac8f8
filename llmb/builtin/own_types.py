# SPDX-License-Identifier: Apache-2.0
"""llmb's own cluster types, by the same interface as a plugin's: local and slurm."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from llmb.contract.cluster_type import ClusterTraits, ClusterType
from llmb.contract.sbatch import SlurmConfig

_BATCH = ClusterTraits(
    nodes="scheduler",
    sbatch_options=True,
    slurm_variables=True,
    sets_vboost=True,
    writable_images=True,
)
_ON_ONE_MACHINE = {"others": "remove it: jobs run one after another on this machine"}
_PYXIS = replace(_BATCH, runs_in="image-file")


def _slurm(section: Any) -> ClusterTraits:
    slurm = section if isinstance(section, SlurmConfig) else SlurmConfig()
    return _PYXIS if slurm.container == "pyxis" else _BATCH


LOCAL = ClusterType(
    name="local",
    create="llmb.builtin.local.local_cluster:create",
    title="only this machine, without a scheduler",
    traits=ClusterTraits(
        trains="torch", nodes="this-machine", one_machine=True, instead=_ON_ONE_MACHINE
    ),
)
SLURM = ClusterType(
    name="slurm",
    create="llmb.builtin.slurm.slurm_cluster:create",
    title="submit jobs with sbatch",
    label="Slurm",
    schema=SlurmConfig,
    traits=_slurm,
    writes_defaults=True,
)


@cache
def own_types() -> Mapping[str, ClusterType]:
    """The cluster types of llmb itself by their names, in the order in which llmb-install offers
    them.
    """
    return {kind.name: kind for kind in (SLURM, LOCAL)}
