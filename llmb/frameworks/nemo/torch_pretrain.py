# SPDX-License-Identifier: Apache-2.0
"""How llmb_workloads.torch_pretrain is launched: Hugging Face's model classes, trained data parallel with torch."""

import json
from typing import Any

from llmb.errors import UsageError
from llmb.runs.job import Job
from llmb.runs.launch import Launch, Program, Site, StagedFile
from llmb.text import typed
from llmb.text.names import suggest
from llmb.workload.gpus import CPU
from llmb.workload.model import model_flops
from llmb.workload.needs import Needs, Venv
from llmb.workload.switches import PROFILE_RANKS

DTYPES = ("bf16", "fp32")
ARCHITECTURES = ("llama", "nemotron", "nemotronh")  # as llmb_workloads.models builds them
PROGRAM, RECIPE, PROFILE_FOLDER = "llmb_workloads.torch_pretrain", "recipe.json", "torch_profile"
CHECKPOINTS = "nemo_experiments/default/checkpoints"  # where NeMo leaves its own
SEED = 1234
TINY, RUNAI = "tiny", "runai"
VENV = "torch"
PACKAGES = ("torch>=2.4", "transformers>=5.6")  # as llmb_workloads.torch_pretrain wants them


def needs(site: Site) -> Needs:
    """One environment with torch and transformers in the versions of the site's settings, the same for every workload.

    Raises KeyError when ``site.settings`` lacks ``torch`` or ``transformers``.
    """
    pins = tuple(f"{name}=={site.settings[name]}" for name in ("torch", "transformers"))
    return Needs(needs=(Venv(name=VENV, requirements=pins),))


def applies(job: Job, site: Site) -> bool:
    """Whether ``job`` is for this program: every job of this machine, elsewhere a tiny one.

    In containers too: on Slurm with pyxis, and on Run:ai, which has no other way.
    """
    return site.cluster_type == "local" or (site.cluster_type in (RUNAI, "slurm") and _is_tiny(job))


def _is_tiny(job: Job) -> bool:
    return job.model_size == TINY and job.dtype in DTYPES and job.tp * job.pp * job.cp == 1


def launch(job: Job, site: Site, *, own_image: bool = False) -> Launch:
    """``job`` as one process for each GPU, or CPU rank. Raises UsageError for what the program cannot run.

    ``own_image``: whether the job's image was chosen for it, and is not that of its workload.
    """
    if (ways := job.tp * job.pp * job.cp) > 1:
        raise UsageError(
            f"{job.experiment_name}: its program is data parallel only, tp·pp·cp is {ways}",
            hint="--set tp=1 --set pp=1 --set cp=1, where the model fits one GPU; size tiny always does",
        )
    if job.dtype not in DTYPES:
        raise UsageError(
            f"{job.experiment_name}: its program trains in {' or '.join(DTYPES)}, not {job.dtype}",
            hint=f"--dtype {DTYPES[0]}",
        )
    if job.model.architecture not in ARCHITECTURES:
        raise UsageError(
            f"{job.experiment_name}: its program builds no architecture '{job.model.architecture}'",
            hint=suggest(job.model.architecture, ARCHITECTURES),
        )
    _check_switches(job, site)
    in_pod, in_image = site.cluster_type == RUNAI, site.cluster_type == "slurm" and site.container
    venv = site.venvs.get(VENV, site.venv) if not in_image else None  # the image has a Python of its own
    if (in_pod or in_image) and venv is None and not own_image:
        also = f", or {_own_venv(job)} an environment on the volume" if in_pod else ""
        raise UsageError(
            f"{job.experiment_name}: its program needs {' and '.join(PACKAGES)}, which NeMo's image does not have",
            hint=f"--image IMAGE (image: in a YAML list) names one that has them{also}",
        )
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if site.gpu_type == CPU else {}  # the program takes a GPU that it sees
    return Launch(
        name=job.experiment_name,
        nodes=job.nodes,
        ranks_per_node=job.gpus_per_node,
        time_limit=job.time_limit,
        program=Program(module=PROGRAM),
        args=(RECIPE,),
        image=job.image if in_pod or in_image else None,
        venv=str(venv) if venv is not None else None,
        packages=PACKAGES if venv is not None else (),
        fixes=dict.fromkeys(PACKAGES, _fix(job, site)) if venv is not None else {},
        environment={**hidden, **job.env},
        files=(StagedFile(name=RECIPE, text=json.dumps(recipe(job), indent=2) + "\n"),),
    )


def _fix(job: Job, site: Site) -> str:
    """What to do about an environment that is not for this program, as that of NeMo."""
    also = f"let {_own_venv(job)} in cluster_config.yaml name another environment"
    if site.cluster_type == RUNAI:  # where nothing but images is installed
        return also
    return f"llmb-install add {job.workload} makes one, or {also}"


def _own_venv(job: Job) -> str:
    return f"workloads.config.{job.workload}.venvs.{VENV}"


def _check_switches(job: Job, site: Site) -> None:
    """Raise UsageError for a switch that this program does not obey."""
    switches, cpu = job.switches, site.gpu_type == CPU
    wrong = (
        ("it loads no checkpoint", "leave load_checkpoint out", switches.load_checkpoint is not None),
        ("on CPUs there is no NCCL to trace", "leave nccl_trace out", bool(switches.nccl_trace) and cpu),
        ("it profiles with torch, which samples no GPU metrics", "leave gpu_metrics out", bool(switches.gpu_metrics)),
        ("it profiles every rank", "leave profile_ranks out", switches.profile_ranks not in (None, PROFILE_RANKS)),
    )
    for message, hint, is_wrong in wrong:
        if is_wrong:
            raise UsageError(f"{job.experiment_name}: {message}", hint=hint)


def recipe(job: Job) -> dict[str, Any]:
    """All that the program is told, as plain data: nothing is looked up when it runs."""
    window = {"start_step": job.switches.profile_start, "stop_step": job.switches.profile_stop}
    model = typed.to_data(job.model)
    del model["gated"]
    return {
        "program": "torch_pretrain",
        "model": model,
        "parallelism": {"tp": job.tp, "pp": job.pp, "cp": job.cp, "vp": job.vp},
        "dtype": job.dtype,
        "micro_batch": job.mbs,
        "global_batch": job.gbs,
        "max_steps": job.max_steps,
        "learning_rate": job.learning_rate,
        "seed": SEED,
        "model_flops": model_flops(job.model),
        "checkpoint": {"save": True, "dir": CHECKPOINTS} if job.switches.save_checkpoint else None,
        "profile": {**window, "dir": PROFILE_FOLDER} if job.profile else None,
    }
