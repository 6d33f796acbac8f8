# SPDX-License-Identifier: Apache-2.0
"""The cluster that the answers describe, and its Site, which hooks of plugins get."""

import platform

from llmb.config import ClusterConfig
from llmb.runs.launch import Site
from llmb.text import typed
from llmb_installer.answers.schema import AUTO, Answers, without_nulls


def cluster_of(answers: Answers, gpu_type: str) -> ClusterConfig:
    """The cluster that the answers describe, with nothing installed yet."""
    return ClusterConfig(
        cluster_type=answers.cluster_type,
        gpu_type=gpu_type,
        gpu_types=answers.gpu_types,
        slurm=answers.slurm,
        runai=answers.runai,
        llmb_install=answers.install,
        kind=answers.kind,
        own_section=answers.own_section,
    )


def site_of(answers: Answers, gpu_type: str) -> Site:
    """The site that plugins are asked about, as llmb-run will see it. ``answers`` are settled."""
    config = cluster_of(answers, gpu_type)
    is_auto = answers.node_architecture == AUTO and answers.traits.nodes == "this-machine"
    return Site(
        cluster_type=answers.cluster_type,
        traits=answers.traits,
        gpu_type=config.rows_for(gpu_type),
        gpus_per_node=config.gpu(gpu_type).gpus_per_node,
        node_architecture=platform.machine() if is_auto else answers.node_architecture,
        install=answers.install,
        container=answers.uses_images,
        environment=answers.environment,
        settings=_settings(answers),
        plugins=answers.plugins,
    )


def _settings(answers: Answers) -> dict[str, str]:
    """What plugins read of the answers: versions, the tokenizer and the framework."""
    release = {} if answers.bridge_release is None else {"bridge_release": answers.bridge_release}
    versions: dict[str, str] = without_nulls(typed.to_data(answers.versions))
    return {**versions, "tokenizer": answers.tokenizer, "framework": answers.framework, **release}
