# SPDX-License-Identifier: Apache-2.0
"""The training frameworks of llmb, and the hooks of workloads whose plugins define none.

These hooks ask the framework of the workload or of the job, which may be a plugin's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from llmb import api


@hookimpl
def llmb_frameworks() -> Sequence[api.Framework]:
    """Return NeMo 2, Megatron-Bridge and the torch program."""
    from llmb.builtin.bridge import framework as bridge
    from llmb.builtin.nemo import framework as nemo
    from llmb.builtin.torch import framework as torch

    return [nemo.framework(), bridge.framework(), torch.framework()]


@hookimpl(trylast=True)
def llmb_setup(workload: api.Workload, site: api.Site) -> api.Needs | None:
    """Return the image, or the environment without containers, of the selected frameworks."""
    from llmb.contract.needs import Needs

    answers = [
        _framework(name, workload).needs(workload, site) for name in _selected(workload, site)
    ]
    needs = [answer for answer in answers if answer is not None]
    return Needs(needs=tuple(need for part in needs for need in part.needs)) if needs else None


def _framework(name: str, workload: api.Workload) -> api.Framework:
    """Return the framework ``name``. A workload that no plugin offers knows llmb's alone."""
    return _frameworks_of(workload)[name]


def _frameworks_of(workload: api.Workload) -> Mapping[str, api.Framework]:
    return workload.frameworks or {framework.name: framework for framework in llmb_frameworks()}


def _selected(workload: api.Workload, site: api.Site) -> list[str]:
    """Return the frameworks to install, that of workload.yaml first.

    By default that, or one that brings rows for the GPU type if it has none. A workload that has
    only one of them is installed for that, whatever is selected.
    """
    from llmb.contract.spec import NEMO
    from llmb.plan.framework import brought_sizes

    if not workload.frameworks:
        workload = workload.known_to(_frameworks_of(workload))
    own_name, brought = workload.framework, [framework.name for framework, _ in workload.brought()]
    choice = site.settings.get("framework", "auto")
    if not brought or site.runs.trains == "torch" or site.gpu_type == "cpu":
        return [own_name]
    sizes = workload.sizes.values()
    if not any(size.rows for size in sizes):
        return brought if choice == "both" else [choice if choice in brought else brought[0]]
    if choice == "auto":
        has_rows = any(
            site.gpu_type in row.gpu
            for size in sizes
            if size.nemo is not None or own_name != NEMO
            for row in size.rows
        )
        other_names = [] if has_rows else list(brought_sizes(workload, site.gpu_type))
        return other_names[:1] or [own_name]
    if choice == "both":
        return [own_name, *brought]
    return [choice if choice in brought else own_name]


@hookimpl(trylast=True)
def llmb_launch(
    workload: api.Workload, job: api.Job, site: api.Site
) -> api.Launch | api.Command | None:
    """Launch the workload's own command, else the job's framework."""
    from llmb.contract.launch import Launch

    if workload.launch is not None:
        from llmb.contract.placeholders import filled

        return Launch.of(filled(workload.launch, job), job, site)
    launch = _framework(job.framework, workload).launch(workload, job, site)
    workload = workload if workload.frameworks else workload.known_to(_frameworks_of(workload))
    if launch is None or not any(workload.brought()):
        return launch
    from llmb.builtin.install_hint import fixes_of

    launch = launch if isinstance(launch, Launch) else Launch.of(launch, job, site)
    fixes = fixes_of(workload, job, launch, site, _selected(workload, site))
    return replace(launch, fixes={**fixes, **launch.fixes})


@hookimpl(trylast=True)
def llmb_parse(workload: api.Workload) -> api.ParseSpec:
    """The format of the workload, else of its framework, else NeMo 2's step lines.

    llmb's own programs print these.
    """
    from llmb.contract.formats import NEMO2

    return workload.parse or _framework(workload.framework, workload).parse or NEMO2
