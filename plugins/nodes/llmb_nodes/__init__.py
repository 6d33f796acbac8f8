# SPDX-License-Identifier: Apache-2.0
"""Nodes: their checks, their history and the suspects among them, as hooks of llmb."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmb.api import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import click

    from llmb import api

LLMB_CONTRACT = "1.1"
SUSPECTS = "suspects"
_HERE = Path(__file__).parent
_TORCH, _VENV = "torch>=2.4", "torch"


@dataclass(frozen=True, kw_only=True)
class NodesSettings:
    """The section ``plugins.llmb-nodes`` of cluster_config.yaml."""

    #: A file with facts and measures of this site, from the install directory.
    checks: str = ""


@hookimpl
def llmb_settings() -> type:
    """The section of the plugin."""
    return NodesSettings


@hookimpl
def llmb_workload() -> "api.Workload":
    """The check and the diagnosis as a job, which nobody submits but ``llmb-run nodes``."""
    from llmb import api

    return api.read_workload(_HERE / "workload.yaml")


@hookimpl
def llmb_setup(workload: "api.Workload", site: "api.Site") -> "api.Needs":
    """Return the image if ranks run in containers, else the environment of the microbenchmarks."""
    from llmb import api

    if site.container or site.runs.pulls_images:
        return api.Needs(needs=(api.Image(reference=str(workload.image)),))
    # Needs with equal content are one, so the pins are those of the other workloads.
    pins = tuple(
        f"{name}=={site.settings[name]}"
        for name in ("torch", "transformers")
        if name in site.settings
    )
    return api.Needs(needs=(api.Venv(name=_VENV, requirements=pins or (_TORCH,)),))


@hookimpl
def llmb_launch(workload: "api.Workload", job: "api.Job", site: "api.Site") -> "api.Launch":
    """Launch one process for each GPU, with the program and its table in the run's folder."""
    import json

    from llmb import api
    from llmb_nodes.diagnosis import SIZE, program_words
    from llmb_nodes.history import TABLE
    from llmb_nodes.table import table_for

    checks = site.own(NodesSettings).checks
    table = table_for(site.gpu_type, job.gpus_per_node, site.install / checks if checks else None)
    in_image = site.runs.pulls_images or (site.runs.runs_in == "image-file" and site.container)
    venv = None if in_image else site.venvs.get(_VENV, site.venv)
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if site.gpu_type == "cpu" else {}
    module, words = "llmb_nodes.program", ["--quick"] if job.model_size == "quick" else []
    if job.model_size == SIZE:
        module, words = "llmb_nodes.program.diagnose", program_words(job.parameters)
    return api.Launch(
        name=job.experiment_name,
        nodes=job.nodes,
        ranks_per_node=job.gpus_per_node,
        time_limit=job.time_limit,
        program=api.Program(module=module),
        args=(f"--table={TABLE}", *words),
        image=job.image if in_image else None,
        venv=str(venv) if venv is not None else None,
        environment={**hidden, **job.env},
        files=(
            *_staged(),
            api.StagedFile(name=TABLE, text=json.dumps(table, separators=(",", ":")) + "\n"),
        ),
    )


def _staged() -> "list[api.StagedFile]":
    """The program as a package of the run's folder, from which Python imports modules first."""
    from llmb import api

    sources = sorted((_HERE / "program").glob("*.py"))
    texts = {f"program/{path.name}": path.read_text(encoding="utf-8") for path in sources}
    return [
        api.StagedFile(name=f"llmb_nodes/{name}", text=text)
        for name, text in {"__init__.py": "", **texts}.items()
    ]


@hookimpl
def llmb_commands() -> "list[click.Command]":
    """``llmb-run nodes``."""
    from llmb_nodes.commands import nodes
    from llmb_nodes.diagnose_command import diagnose
    from llmb_nodes.suspects_command import suspects

    nodes.add_command(diagnose)
    nodes.add_command(suspects)
    return [nodes]


@hookimpl
def llmb_report(
    results: "Sequence[Mapping[str, Any]]",
    runs: "Sequence[api.RunRecord]",
    kept_results: "Sequence[Mapping[str, Any]]",
) -> "list[api.ReportSection]":
    """Return the page ``nodes``, and a section on suspects if there are any."""
    from llmb_nodes.report_page import sections

    return sections(results, runs, kept_results)


@hookimpl
def llmb_nodes(
    name: str, runs: "Sequence[api.RunRecord]", kept_results: "Sequence[Mapping[str, Any]]"
) -> "list[str] | None":
    """Return the suspects for ``--exclude @suspects``."""
    if name != SUSPECTS:
        return None
    from llmb_nodes.suspects import find

    return [suspect.name for suspect in find(runs, kept_results)]
