# SPDX-License-Identifier: Apache-2.0
"""Launches llmb_workloads.torch_pretrain: Hugging Face's models, trained data parallel."""

import json
from typing import Any

from llmb.builtin.torch.torch_names import DTYPES
from llmb.contract.flops import model_flops
from llmb.contract.gpus import CPU
from llmb.contract.job import Job
from llmb.contract.launch import Launch, Program, Site, StagedFile
from llmb.contract.needs import Needs, Venv
from llmb.contract.switches import PROFILE_RANKS
from llmb.core import typed
from llmb.core.names import suggest
from llmb.errors import UsageError

ARCHITECTURES = ("llama", "nemotron", "nemotronh")  # as llmb_workloads.models builds them
# Parts of a model that the program cannot build.
_UNSUPPORTED = ("moe", "mla", "window", "mtp")
PROGRAM, RECIPE, PROFILE_FOLDER = "llmb_workloads.torch_pretrain", "recipe.json", "torch_profile"
CHECKPOINTS = "nemo_experiments/default/checkpoints"  # the folder that NeMo uses
SEED = 1234
TINY = "tiny"
VENV = "torch"
PACKAGES = ("torch>=2.4", "transformers>=5.6")  # the same as in llmb_workloads.torch_pretrain
ARCHITECTURE_UNKNOWN = "architecture-unknown"


def name_of(program: Program) -> str:
    """Return the name of llmb's torch program, or "" for any other. It prints NeMo's step lines."""
    return "llmb's torch program" if program.module == PROGRAM else ""


def needs(site: Site) -> Needs:
    """Return the environment of every workload, with the versions of ``site.settings``.

    Raises KeyError if the settings have no ``torch`` or ``transformers``.
    """
    pins = tuple(f"{name}=={site.settings[name]}" for name in ("torch", "transformers"))
    return Needs(needs=(Venv(name=VENV, requirements=pins),))


def applies(job: Job, site: Site) -> bool:
    """Return True if this program runs ``job``: size ``tiny``, or any if torch trains all."""
    training = job.training
    is_tiny = training is not None and training.tp * training.pp * training.cp == 1
    is_tiny = is_tiny and job.model_size == TINY and job.dtype in DTYPES
    return site.runs.trains == "torch" or is_tiny


def launch(job: Job, site: Site, *, own_image: bool = False) -> Launch:
    """Launch ``job`` with a process for each GPU or CPU rank. Raises UsageError.

    ``own_image``: the user chose the job's image, so it is not the workload's.
    """
    _check_model(job)
    _check_switches(job, site)
    in_image = site.runs.runs_in == "image-file" and site.container
    venv = site.venvs.get(VENV, site.venv) if not in_image else None  # an image has its own Python
    uses_image = in_image or site.runs.pulls_images
    if uses_image and venv is None and not own_image:
        raise _without_packages(job, site)
    # the program uses any GPU that it sees
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if site.gpu_type == CPU else {}
    return Launch(
        name=job.experiment_name,
        nodes=job.nodes,
        ranks_per_node=job.gpus_per_node,
        time_limit=job.time_limit,
        program=Program(module=PROGRAM),
        args=(RECIPE,),
        image=job.image if uses_image else None,
        venv=str(venv) if venv is not None else None,
        packages=PACKAGES if venv is not None else (),
        fixes=dict.fromkeys(PACKAGES, _fix(job, site)) if venv is not None else {},
        environment={**hidden, **job.env},
        files=(StagedFile(name=RECIPE, text=json.dumps(recipe(job), indent=2) + "\n"),),
    )


def _check_model(job: Job) -> None:
    """Raise UsageError for a model, a dtype or a parallelism that the program cannot train."""
    name, training = job.experiment_name, job.trained
    if (ways := training.tp * training.pp * training.cp) > 1:
        raise UsageError(
            f"{name}: the torch program is data parallel only, but tp·pp·cp is {ways}",
            hint="--set tp=1 --set pp=1 --set cp=1, if the model fits one GPU; size tiny does",
            code="parallelism-unsupported",
            value=ways,
        )
    if job.dtype not in DTYPES:
        raise UsageError(
            f"{name}: the torch program trains in {' or '.join(DTYPES)}, not in {job.dtype}",
            hint=f"--dtype {DTYPES[0]}",
            code="dtype-unsupported",
            value=job.dtype,
        )
    if (architecture := training.model.architecture) not in ARCHITECTURES:
        raise UsageError(
            f"{name}: the torch program has no architecture '{architecture}'",
            hint=suggest(architecture, ARCHITECTURES),
            code=ARCHITECTURE_UNKNOWN,
            value=architecture,
        )
    if unsupported := [part for part in _UNSUPPORTED if getattr(training.model, part) is not None]:
        raise UsageError(
            f"{name}: the torch program trains dense models with query groups, not"
            f" '{unsupported[0]}'",
            hint="remove it from this size",
            code="model-unsupported",
            key=unsupported[0],
        )


def _without_packages(job: Job, site: Site) -> UsageError:
    """Return the error for an image without the program's packages."""
    also = f", or {_own_venv(job)} an environment on the volume" if site.runs.pulls_images else ""
    return UsageError(
        f"{job.experiment_name}: the torch program needs {' and '.join(PACKAGES)}, which NeMo's"
        " image does not have",
        hint=f"--image IMAGE (image: in a YAML list) names one that has them{also}",
        code="image-without-packages",
        value=job.image,
    )


def _fix(job: Job, site: Site) -> str:
    """The fix for an environment without the program's packages, such as that of NeMo."""
    also = f"set {_own_venv(job)} in cluster_config.yaml to another environment"
    if site.runs.pulls_images:  # llmb-install makes no environments there
        return also
    return f"llmb-install add {job.workload} makes an environment, or {also}"


def _own_venv(job: Job) -> str:
    return f"workloads.config.{job.workload}.venvs.{VENV}"


def _check_switches(job: Job, site: Site) -> None:
    """Raise UsageError for a switch that has no effect in this program."""
    switches, cpu = job.switches, site.gpu_type == CPU
    unsupported = (
        ("load_checkpoint", "it cannot load checkpoints", switches.load_checkpoint is not None),
        ("nccl_trace", "it does not use NCCL on CPUs", bool(switches.nccl_trace) and cpu),
        (
            "stragglers",
            "it has no straggler detector",
            bool(switches.stragglers),
        ),
        (
            "gpu_metrics",
            "its profiler, torch's, samples no GPU metrics",
            bool(switches.gpu_metrics),
        ),
        (
            "profile_ranks",
            "it profiles every rank",
            switches.profile_ranks not in (None, PROFILE_RANKS),
        ),
    )
    for switch, reason, is_wrong in unsupported:
        if is_wrong:
            raise UsageError(
                f"{job.experiment_name}: the torch program does not support {switch}: {reason}",
                hint=f"remove {switch}",
                code="switch-without-effect",
                key=switch,
            )


def recipe(job: Job) -> dict[str, Any]:
    """The program's whole configuration as plain data. It looks nothing up when it runs."""
    training = job.trained
    window = {"start_step": job.switches.profile_start, "stop_step": job.switches.profile_stop}
    model = typed.to_data(training.model)
    for name in ("gated", *_UNSUPPORTED):
        del model[name]
    return {
        "program": "torch_pretrain",
        "model": model,
        "parallelism": {"tp": training.tp, "pp": training.pp, "cp": training.cp, "vp": training.vp},
        "dtype": job.dtype,
        "micro_batch": training.mbs,
        "global_batch": training.gbs,
        "max_steps": job.max_steps,
        "learning_rate": training.learning_rate,
        "seed": SEED,
        "model_flops": model_flops(training.model),
        "checkpoint": {"save": True, "dir": CHECKPOINTS} if job.switches.save_checkpoint else None,
        "profile": {**window, "dir": PROFILE_FOLDER} if job.profile else None,
    }
