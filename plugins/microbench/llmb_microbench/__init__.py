# SPDX-License-Identifier: Apache-2.0
"""Microbenchmarks as an llmb workload: workload.yaml has the cases, ``program`` runs on nodes.

Nothing of this distribution is installed on compute nodes, which need only torch: each run
stages the program's files.
"""

from pathlib import Path

from llmb import api
from llmb_microbench.program.formulas import BUS_FACTORS, smallest_message

_HERE = Path(__file__).parent
PROGRAM = "llmb_microbench.program"
_TORCH = "torch>=2.4"
_VENV = "torch"
# With these NCCL prints the version, the transport and the networks of a communicator, once: a
# collective is compared with the figure of its own fabric.
_FABRIC = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"}
_ITEM_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


@api.hookimpl
def llmb_workload() -> "api.Workload":
    """A size for each case."""
    return api.read_workload(_HERE / "workload.yaml")


@api.hookimpl
def llmb_setup(workload: "api.Workload", site: "api.Site") -> "api.Needs":
    """Return the image if ranks run in containers, else the environment that size tiny has too."""
    if site.container or site.runs.pulls_images:
        return api.Needs(needs=(api.Image(reference=str(workload.image)),))
    # Needs with equal content are one: without transformers, llmb would install a second torch.
    pins = tuple(
        f"{name}=={site.settings[name]}"
        for name in ("torch", "transformers")
        if name in site.settings
    )
    return api.Needs(needs=(api.Venv(name=_VENV, requirements=pins or (_TORCH,)),))


@api.hookimpl
def llmb_launch(workload: "api.Workload", job: "api.Job", site: "api.Site") -> "api.Launch":
    """Launch one process for each GPU or CPU rank, with the program staged in the run's folder."""
    _check_ranks(job)
    _check_message(workload, job)
    in_pod, in_container = (
        site.runs.pulls_images,
        site.runs.runs_in == "image-file" and site.container,
    )
    # an image has its own Python
    venv = site.venvs.get(_VENV, site.venv) if not in_container else None
    settings = {
        "case": job.model_size,
        "dtype": job.dtype,
        "steps": str(job.max_steps),
        **job.parameters,
    }
    if site.gpu_type == "cpu":  # the program uses any GPU that it sees
        usual = {"CUDA_VISIBLE_DEVICES": ""}
    else:
        usual = _FABRIC if job.model_size in BUS_FACTORS else {}
    return api.Launch(
        name=job.experiment_name,
        nodes=job.nodes,
        ranks_per_node=job.gpus_per_node,
        time_limit=job.time_limit,
        program=api.Program(module=PROGRAM),
        args=tuple(f"--{name}={value}" for name, value in settings.items()),
        image=job.image if in_pod or in_container else None,
        venv=str(venv) if venv is not None else None,
        packages=(_TORCH,) if venv is not None else (),
        environment={**usual, **job.env},
        files=tuple(staged_files()),
    )


def _check_ranks(job: "api.Job") -> None:
    """Raise UsageError for a collective of one rank, before the program would."""
    if job.model_size in BUS_FACTORS and job.nodes * job.gpus_per_node < 2:
        raise api.UsageError(
            f"{job.experiment_name}: {job.model_size} needs 2 ranks or more",
            hint="choose a scale of 2 or more",
            code="one-rank",
            key="scale",
            value=job.scale,
        )


def _check_message(workload: "api.Workload", job: "api.Job") -> None:
    """Raise UsageError for a message without an element for each rank, before the program would."""
    if "message_size" not in job.parameters:
        return
    from llmb_microbench.program.settings import read_size

    text, ranks = job.parameters["message_size"], job.nodes * job.gpus_per_node
    least = smallest_message(job.model_size, _ITEM_BYTES[job.dtype], ranks)
    if read_size(text) < least:
        large = next(
            size for size in workload.parameters["message_size"].choices if read_size(size) >= least
        )
        message = (
            f"{job.experiment_name}: a message of {text} has no element of {job.dtype} for each of"
            f" {ranks} ranks"
        )
        hint = f"--set message_size={large} or more, or a smaller scale"
        raise api.UsageError(
            message, hint=hint, code="message-too-small", key="message_size", value=text
        )


def staged_files() -> "list[api.StagedFile]":
    """The program as a package of the run's folder, from which Python imports modules first."""
    sources = sorted((_HERE / "program").glob("*.py"))
    names = {
        f"llmb_microbench/program/{path.name}": path.read_text(encoding="utf-8") for path in sources
    }
    return [
        api.StagedFile(name=name, text=text)
        for name, text in {"llmb_microbench/__init__.py": "", **names}.items()
    ]
