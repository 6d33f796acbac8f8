# SPDX-License-Identifier: Apache-2.0
"""The cluster that the answers describe, and its Site, which hooks of plugins get."""

import platform

from llmb.contract.launch import Site
from llmb.contract.schema import ClusterConfig
from llmb.core import typed
from llmb_installer.answers.schema import AUTO, Answers, drop_nulls


def make_cluster_config(answers: Answers, gpu_type: str) -> ClusterConfig:
    """The cluster that the answers describe, with nothing installed yet."""
    return ClusterConfig(
        cluster_type=answers.cluster_type,
        gpu_type=gpu_type,
        gpu_types=answers.gpu_types,
        llmb_install=answers.install,
        kind=answers.kind,
        sections=answers.sections,
    )


def make_site(answers: Answers, gpu_type: str) -> Site:
    """The site that plugins are asked about, as llmb-run will see it. ``answers`` are settled."""
    config = make_cluster_config(answers, gpu_type)
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
    """The settings that plugins read: versions, the tokenizer and the framework."""
    release = {} if answers.bridge_release is None else {"bridge_release": answers.bridge_release}
    versions: dict[str, str] = drop_nulls(typed.to_data(answers.versions))
    return {**versions, "tokenizer": answers.tokenizer, "framework": answers.framework, **release}
