# SPDX-License-Identifier: Apache-2.0
"""The command that installs the image or the environment of a job whose framework is missing."""

import shlex
from collections.abc import Collection, Mapping

from llmb.contract.job import Job
from llmb.contract.launch import ENVIRONMENT, Launch, Site
from llmb.contract.spec import Framework, Workload

_RELEASE = {"bridge": "bridge_release"}  # the answers that select a release, by framework


def fixes_of(
    workload: Workload, job: Job, launch: Launch, site: Site, selected: Collection[str]
) -> Mapping[str, str]:
    """Return the fix for a missing image or environment, empty if adding the workload is the fix.

    ``selected``: the frameworks that the installation has for the workload, by its settings.
    """
    name, is_selected = job.framework, job.framework in selected
    if name == workload.framework and is_selected:
        return {}
    framework = workload.frameworks[name]
    if site.runs.trains == "torch":
        library = _library_of(framework, job.release)
        fix = f"name an environment with {library} by venv_path in cluster_config.yaml"
        return {ENVIRONMENT: f"llmb-install does not install it for {site.cluster_type}; {fix}"}
    install_option = f"--install {shlex.quote(str(site.install))}"
    newest, answer = next(iter(framework.releases), None), _RELEASE.get(name)
    installed = newest if answer is None else site.settings.get(answer, newest)
    keeps_its_own = job.release != installed and (is_selected or answer is None)
    if keeps_its_own and launch.image is not None:
        return {launch.image: f"llmb-install image {shlex.quote(launch.image)} {install_option}"}
    trained_by = {workload.framework, *(brought.name for brought, _ in workload.brought())}
    chosen = site.settings.get("framework")
    if not is_selected:
        # A choice of another framework stays.
        chosen = "both" if len(trained_by) == 2 or chosen is not None else name
    settings = {"framework": chosen}
    if answer is not None and not installed == job.release == newest:
        settings[answer] = job.release
    options = "".join(
        f"--set {key}={value} " for key, value in settings.items() if value is not None
    )
    return {
        launch.image
        or ENVIRONMENT: f"llmb-install add {job.workload} {options}{install_option} --yes"
    }


def _library_of(framework: Framework, release: str | None) -> str:
    """Return the library of a release (None: the newest) with its version, else the title."""
    name = release or next(iter(framework.releases), None)
    libraries = {} if name is None else framework.releases[name].libraries
    version = libraries.get(framework.library)
    return framework.title if version is None else f"{framework.library} {version}"
