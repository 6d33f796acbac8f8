# SPDX-License-Identifier: Apache-2.0
"""Launches llmb_workloads.nemo_pretrain: the NeMo 2 recipe of a size, with its published configuration."""

from collections.abc import Mapping

from llmb.errors import UsageError
from llmb.frameworks.nemo import wrappers
from llmb.frameworks.nemo.needs import VENV, Tokenizer, tokenizer_of
from llmb.frameworks.nemo.recipe import recipe_of, to_text
from llmb.planning.configure import find_row
from llmb.runs.job import Job
from llmb.runs.launch import Launch, Program, Site, StagedFile, Wrapper
from llmb.workload.gpus import CPU
from llmb.workload.nemo_recipe import NemoRecipe
from llmb.workload.spec import Size, Workload
from llmb.workload.switches import PROFILE_RANKS

RECIPE = "recipe.json"
PACKAGES = ("nemo_toolkit>=2.0", "megatron", "nemo_run")  # a folder `nemo` alone can belong to another package
_ALWAYS: Mapping[str, str] = {
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "TOKENIZERS_PARALLELISM": "False",
    "NCCL_NVLS_ENABLE": "0",
    "NVTE_FLASH_ATTN": "1",
    "NVTE_FUSED_ATTN": "1",
    "NEMO_LOG_MEMORY_USAGE": "1",
    # Streaming multiprocessors that the norms leave free for communication.
    "NVTE_FWD_LAYERNORM_SM_MARGIN": "16",
    "NVTE_BWD_LAYERNORM_SM_MARGIN": "16",
}
_BLACKWELL = ("b200", "gb200")


def applies(workload: Workload, job: Job, site: Site) -> bool:
    """Whether this program runs ``job``: a size with a NeMo recipe, on GPUs."""
    return workload.sizes[job.model_size].nemo is not None and site.gpu_type != CPU


def launch(workload: Workload, job: Job, site: Site) -> Launch:
    """``job`` with one process for each GPU, in the image or in the installed environment. Raises UsageError."""
    size = workload.sizes[job.model_size]
    row = find_row(size, site.gpu_type, job.dtype, job.scale, strong=bool(job.switches.strong_scaling))
    if size.nemo is None or row is None:
        raise UsageError(
            f"{job.experiment_name}: NeMo has no configuration for it on {site.gpu_type}",
            hint=f"llmb-run list -w {job.workload}",
            code="row-missing",
            value=site.gpu_type,
        )
    loaded = job.switches.load_checkpoint
    venv = None if site.container else site.venvs.get(VENV, site.venv)
    nemo = size.nemo.of(row.release(job.scale))
    tokenizer = tokenizer_of(job, nemo, site)
    environment = environment_of(job, nemo, site.gpu_type, asks_hub=tokenizer.from_hub)
    recipe = recipe_of(job, size, nemo, row, tokenizer.name, has_pmix=site.has_pmix)
    return Launch(
        name=job.experiment_name,
        nodes=job.nodes,
        ranks_per_node=job.gpus_per_node,
        time_limit=job.time_limit,
        program=Program(module="llmb_workloads.nemo_pretrain"),
        args=(RECIPE,),
        image=job.image,
        venv=str(venv) if venv is not None else None,
        packages=() if site.container else PACKAGES,
        mounts=_mounts(job, tokenizer) if site.container else (),  # --mount's are llmb's to add
        environment={**environment, **job.env},
        secrets=tokenizer.secrets,
        wrappers=(*_wrappers(job, site), *((wrappers.libraries(str(venv)),) if venv is not None else ())),
        files=(StagedFile(name=RECIPE, text=to_text(recipe)),),
        inputs=(*((f"{loaded}/weights/*.distcp",) if loaded is not None else ()), *tokenizer.inputs),
        fixes={**tokenizer.fixes, **_checkpoint_fix(loaded)},
        gpu_memory_gb=row.memory_gb,
        disk_gb=_disk_gb(job, size),
    )


def _disk_gb(job: Job, size: Size) -> float:
    """The disk space of the job's checkpoint; 0 for one without a published size."""
    return size.checkpoint.size_gb if job.switches.save_checkpoint and size.checkpoint is not None else 0.0


def _mounts(job: Job, tokenizer: Tokenizer) -> tuple[str, ...]:
    folders = (job.switches.load_checkpoint, tokenizer.folder)
    return tuple(f"{folder}:{folder}:ro" for folder in folders if folder is not None)


def _wrappers(job: Job, site: Site) -> tuple[Wrapper, ...]:
    bound = wrappers.numa(site.gpu_type)
    if not job.profile:
        return (bound,)
    ranks = job.switches.profile_ranks or PROFILE_RANKS
    profiled = wrappers.profiled_ranks(ranks, job.scale)
    sampling = wrappers.sampling_ranks(profiled, job.gpus_per_node) if job.switches.gpu_metrics else ()
    return bound, wrappers.nsight(ranks, sampling, slurm=site.cluster_type == "slurm")


def _checkpoint_fix(loaded: str | None) -> dict[str, str]:
    if loaded is None:
        return {}
    fix = "write the folder that contains 'weights', as --save-checkpoint creates it:"
    where = "nemo_experiments/default/checkpoints/<...>"
    return {f"{loaded}/weights/*.distcp": f"{fix} {where}"}


def environment_of(job: Job, nemo: NemoRecipe, gpu: str, *, asks_hub: bool = False) -> dict[str, str]:
    """The variables of the ranks of ``job`` on the known GPU type ``gpu``; the job's own variables override them.

    ``asks_hub``: whether the ranks fetch files from the model hub. Source: the launch scripts of releases 25.04 to
    25.07.
    """
    found = {**_ALWAYS, "TRANSFORMERS_OFFLINE": "0" if asks_hub else "1"}
    if job.tp > 1 or job.cp > 1:
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "32" if gpu in _BLACKWELL else "1"
    if job.pp > 1:
        found["NCCL_P2P_NET_CHUNKSIZE"] = "2097152"
    if gpu == "gb200":
        found["NCCL_NET_GDR_LEVEL"] = "PHB"
    return {**found, **nemo.environment}
