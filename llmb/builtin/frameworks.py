# SPDX-License-Identifier: Apache-2.0
"""The training frameworks of llmb, and the hooks of workloads whose plugins define none.

These hooks ask the framework of the workload or of the job, which may be a plugin's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmb.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    bridge, own = _frameworks(workload, site)
    names = [*([workload.framework] if own else []), *(["bridge"] if bridge else [])]
    answers = [_framework(name, workload).needs(workload, site) for name in names]
    needs = [answer for answer in answers if answer is not None]
    return Needs(needs=tuple(need for part in needs for need in part.needs)) if needs else None


def _framework(name: str, workload: api.Workload) -> api.Framework:
    """Return the framework ``name``. A workload that no plugin offers knows llmb's alone."""
    known = workload.frameworks or {own.name: own for own in llmb_frameworks()}
    return known[name]


def _frameworks(workload: api.Workload, site: api.Site) -> tuple[bool, bool]:
    """Return whether to install Megatron-Bridge, and whether the framework of workload.yaml.

    By default Megatron-Bridge only if the other has no row for the GPU type. A workload that has
    only one of them is installed for that, whatever is selected.
    """
    from llmb.plan.bridge_rows import bridge_sizes

    choice = site.settings.get("framework", "auto")
    if workload.bridge is None or site.runs.trains == "torch" or site.gpu_type == "cpu":
        return False, True
    if not any(size.rows for size in workload.sizes.values()):
        return True, False
    if choice == "auto":
        sizes = workload.sizes.values()
        has_nemo = any(
            site.gpu_type in row.gpu for size in sizes if size.nemo is not None for row in size.rows
        )
        choice = "nemo" if has_nemo or not bridge_sizes(workload, site.gpu_type) else "bridge"
    return choice in ("bridge", "both"), choice in ("nemo", "both")


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
    if not isinstance(launch, Launch) or workload.bridge is None:
        return launch
    from llmb.builtin.install_hint import fixes_of

    bridge, nemo = _frameworks(workload, site)
    return replace(
        launch, fixes={**fixes_of(job, launch, site, bridge=bridge, nemo=nemo), **launch.fixes}
    )


@hookimpl(trylast=True)
def llmb_parse(workload: api.Workload) -> api.ParseSpec:
    """The format of the workload, else of its framework, else NeMo 2's step lines.

    llmb's own programs print these.
    """
    from llmb.contract.formats import NEMO2

    return workload.parse or _framework(workload.framework, workload).parse or NEMO2
