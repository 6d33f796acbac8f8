# SPDX-License-Identifier: Apache-2.0
"""A plugin of one file for a whole cluster: every job uses the fabric that cluster_config.yaml
describes.

Set LLMB_PLUGINS to this folder, and add to cluster_config.yaml:

    plugins:
      file:fabric.py: {adapters: [mlx5_0, mlx5_1], log: true}
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llmb.api import hookimpl

if TYPE_CHECKING:
    from llmb.api import Launch, Site

LLMB_CONTRACT = "1.0"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The section of this plugin: the adapters that NCCL uses, and whether it logs them."""

    adapters: tuple[str, ...] = ()
    log: bool = False


@hookimpl
def llmb_settings() -> type:
    return Settings


@hookimpl(wrapper=True)
def llmb_launch(site: "Site") -> Generator[None, "Launch", "Launch"]:
    launch = yield  # of any workload, complete
    own = site.own(Settings)
    variables = {"NCCL_DEBUG": "INFO"} if own.log else {}
    if own.adapters:
        variables["NCCL_IB_HCA"] = ",".join(own.adapters)
    return replace(launch, environment={**launch.environment, **variables})
