# SPDX-License-Identifier: Apache-2.0
"""How llmb_workloads.nemo_pretrain is launched: the NeMo 2 recipe of a size, with its published configuration."""

from __future__ import annotations

from llmb.configure import find_row
from llmb.errors import UsageError
from llmb.gpus import CPU
from llmb.job import Job
from llmb.launch import Launch, Program, StagedFile, Wrapper
from llmb.nemo import wrappers
from llmb.nemo.environment import environment_of
from llmb.nemo.recipe import recipe_of, to_text
from llmb.secrets import SECRETS_FILE
from llmb.site import Site
from llmb.switches import PROFILE_RANKS
from llmb.workload import NemoRecipe, Size, Workload

RECIPE = "recipe.json"
TOKEN = "HF_TOKEN"


def applies(workload: Workload, job: Job, site: Site) -> bool:
    """Whether ``job`` is for this program: a size that NeMo has a recipe for, on GPUs."""
    return workload.sizes[job.model_size].nemo is not None and site.gpu_type != CPU


def launch(workload: Workload, job: Job, site: Site) -> Launch:
    """``job`` as one process for each GPU, in the image or in the installed environment. Raises UsageError."""
    size = workload.sizes[job.model_size]
    row = find_row(size, site.gpu_type, job.dtype, job.scale, strong=bool(job.switches.strong_scaling))
    if size.nemo is None or row is None:
        raise UsageError(
            f"{job.experiment_name}: NeMo has no configuration for it on {site.gpu_type}",
            hint=f"llmb-run list -w {job.workload}",
        )
    loaded = job.switches.load_checkpoint
    secrets, cures = _tokens(job, size.nemo)
    return Launch(
        name=job.experiment_name,
        nodes=job.nodes,
        ranks_per_node=job.gpus_per_node,
        time_limit=job.time_limit,
        program=Program(module="llmb_workloads.nemo_pretrain"),
        args=(RECIPE,),
        image=job.image,
        venv=str(site.venv) if site.venv is not None and not site.container else None,
        packages=() if site.container else ("nemo", "megatron", "nemo_run"),
        mounts=_mounts(job) if site.container else (),
        environment={**environment_of(job, size.nemo, site.gpu_type), **job.env},
        secrets=secrets,
        wrappers=_wrappers(job, site),
        files=(StagedFile(name=RECIPE, text=to_text(recipe_of(job, size, size.nemo, row))),),
        inputs=(f"{loaded}/weights/*.distcp",) if loaded is not None else (),
        cures={**cures, **_cure_of_checkpoint(loaded)},
        gpu_memory_gb=row.memory_gb,
        disk_gb=_disk_gb(job, size),
    )


def _disk_gb(job: Job, size: Size) -> float:
    """What the job leaves beside its logs; a proxy's checkpoint has no published size."""
    return size.checkpoint.size_gb if job.switches.save_checkpoint and size.checkpoint is not None else 0.0


def _mounts(job: Job) -> tuple[str, ...]:
    loaded = job.switches.load_checkpoint
    own = job.switches.mounts or ()
    return (*own, f"{loaded}:{loaded}:ro") if loaded is not None else own


def _wrappers(job: Job, site: Site) -> tuple[Wrapper, ...]:
    bound = wrappers.numa(site.gpu_type)
    if not job.profile:
        return (bound,)
    ranks = job.switches.profile_ranks or PROFILE_RANKS
    profiled = wrappers.profiled_ranks(ranks, job.scale)
    if not profiled:
        message = f"{job.experiment_name}: it has no rank of those to profile, {ranks}"
        raise UsageError(message, hint=f"take ranks below {job.scale}, or all")
    sampling = wrappers.sampling_ranks(profiled, job.gpus_per_node) if job.switches.gpu_metrics else ()
    return bound, wrappers.nsight(ranks, sampling, slurm=site.cluster_type == "slurm")


def _tokens(job: Job, nemo: NemoRecipe) -> tuple[tuple[str, ...], dict[str, str]]:
    """The secrets that reading the tokenizer takes, and what to do without one."""
    if job.switches.tokenizer != "hub" or not nemo.gated:
        return (), {}
    page = f"https://huggingface.co/{nemo.hub_tokenizer}"
    cure = f"ask for access at {page}, then export your token as {TOKEN} or keep it in {SECRETS_FILE}"
    return (TOKEN,), {TOKEN: f"{cure}; --set tokenizer=null needs none"}


def _cure_of_checkpoint(loaded: str | None) -> dict[str, str]:
    if loaded is None:
        return {}
    cure = "name the folder that holds 'weights', as --save-checkpoint writes it:"
    where = "nemo_experiments/default/checkpoints/<...>"
    return {f"{loaded}/weights/*.distcp": f"{cure} {where}"}
