# SPDX-License-Identifier: Apache-2.0
"""The command that installs the image or the environment of a job whose framework is missing."""

import shlex
from collections.abc import Mapping

from llmb.contract.job import Job
from llmb.contract.launch import ENVIRONMENT, Launch, Site
from llmb.plan.bridge_rows import BRIDGE, releases


def fixes_of(
    job: Job, launch: Launch, site: Site, *, bridge: bool, nemo: bool
) -> Mapping[str, str]:
    """Return the fix for a missing image or environment, empty if adding the workload is the fix.

    ``bridge``, ``nemo``: the installation, by its settings, has that framework.
    """
    is_bridge, newest = job.framework == BRIDGE, next(iter(releases()))
    if not is_bridge and nemo:
        return {}
    if site.runs.trains == "torch":
        libraries = (
            f"megatron-bridge {releases()[job.release or newest].bridge}" if is_bridge else "NeMo"
        )
        fix = f"name an environment with {libraries} by venv_path in cluster_config.yaml"
        return {ENVIRONMENT: f"llmb-install does not install it for {site.cluster_type}; {fix}"}
    install_option = f"--install {shlex.quote(str(site.install))}"
    installed = site.settings.get("bridge_release", newest)
    if is_bridge and bridge and launch.image is not None and job.release != installed:
        # The install keeps its own release.
        return {launch.image: f"llmb-install image {shlex.quote(launch.image)} {install_option}"}
    has_it = is_bridge and bridge
    settings: dict[str, str | None] = {
        "framework": site.settings.get("framework") if has_it else "both"
    }
    if is_bridge and not installed == job.release == newest:
        settings["bridge_release"] = job.release
    chosen = "".join(
        f"--set {name}={value} " for name, value in settings.items() if value is not None
    )
    return {
        launch.image
        or ENVIRONMENT: f"llmb-install add {job.workload} {chosen}{install_option} --yes"
    }
