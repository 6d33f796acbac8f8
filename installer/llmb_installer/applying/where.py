# SPDX-License-Identifier: Apache-2.0
"""What of an installation runs where: what is fetched and built, and what jobs find on the compute nodes."""

from llmb.workload.gpus import CPU
from llmb_installer.planning.plan import Plan
from llmb_installer.steps import VenvStep

_BUILT = {
    "here": "on this machine",
    "srun": "on a compute node, by srun",
    "sbatch": "environments on a compute node, by sbatch; images on this machine",
}


def sentences(plan: Plan) -> list[str]:
    """Two sentences for the user: where things are fetched and built, and what jobs run in."""
    site = plan.intent.site
    venvs = [step for step in plan.intent.steps if isinstance(step, VenvStep)]
    names = " and ".join(step.name for step in venvs)
    if site.cluster_type == "local":
        return [f"Fetched, built and run on this machine, from the environment{'s' * (len(venvs) > 1)} {names}."]
    found = [f"Fetched and built: {_BUILT[plan.intent.answers.method]}."]
    if site.cluster_type == "runai":
        return [*found, f"Jobs run in pods, which pull their image{_with_nemo(site.gpu_type)}."]
    if site.container:
        return [*found, f"Jobs run in their image on compute nodes{_with_nemo(site.gpu_type)}."]
    several = len(venvs) > 1
    if venvs:
        what = f"environment{'s' * several} {names}: nodes must see {'them' if several else 'it'}"
        found.append(f"Jobs run on compute nodes from the {what}.")
    return found


def _with_nemo(gpu_type: str) -> str:
    return "" if gpu_type == CPU else ": NeMo is in it, and nothing of NeMo is installed on this machine"
