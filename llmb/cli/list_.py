# SPDX-License-Identifier: Apache-2.0
"""`llmb-run list`: the workloads, the rows of one workload, and the published figures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from llmb.cli import options
from llmb.cli.context import CliContext, pass_context, say
from llmb.core.grouping import grouped
from llmb.core.names import find_workload_and_size, listed, squash_workload, suggest
from llmb.errors import LlmbError, UsageError, describe

if TYPE_CHECKING:
    from llmb.contract.schema import ClusterConfig
    from llmb.plan.published import Figure

# the fields of `here`
HERE = ("runs", "dtypes", "scales", "all_scales", "most_gpus", "why", "code", "reason", "hint")
_NAMED = 4  # sizes in a note


@click.command("list")
@click.option(
    "-w", "--workload", metavar="W", help="Show all rows of one workload, or of one size: W_SIZE."
)
@click.option("--framework", metavar="NAME", help="Only rows of one framework: nemo or bridge.")
@click.option("--gpu-type", metavar="TYPE", help="Only rows of one GPU type.")
@click.option(
    "--release", metavar="RELEASE", help="Only rows of one image release of Megatron-Bridge."
)
@click.option("--published", is_flag=True, help="Show the published figures.")
@click.option("--check", is_flag=True, help="Check published figures against their step times.")
@options.format_option
@options.install_option
@pass_context
def command(
    context: CliContext,
    workload: str | None,
    framework: str | None,
    gpu_type: str | None,
    release: str | None,
    published: bool,
    check: bool,
    fmt: str,
) -> None:
    """Show the workloads, and which of them run here."""
    from llmb.cli.output import print_all, print_folded
    from llmb.plan import listing

    if framework is not None:
        from llmb.plan.framework import check_framework

        check_framework(framework, context.frameworks)
    if release is not None:
        from llmb.plan.framework import check_release

        try:
            check_release(release, context.workloads.values())
        except UsageError as error:
            raise UsageError(
                error.message, hint=error.hint, code=error.code, key="--release", value=release
            ) from error
    if gpu_type is not None:
        specs = context.workloads.values()
        gpu_types = sorted(
            {name for spec in specs for row in listing.configurations(spec) for name in row["gpu"]}
        )
        if gpu_type not in gpu_types:
            raise UsageError(
                f"--gpu-type: no row has '{gpu_type}'",
                hint=suggest(gpu_type, gpu_types),
                code="gpu-type-unknown",
                key="--gpu-type",
                value=gpu_type,
            )
    installed = _find_installed(context)
    sizes = {name: spec.sizes for name, spec in context.workloads.items()}
    key, size = (None, None) if workload is None else find_workload_and_size(workload, sizes)
    keys = [key] if key else list(context.workloads)
    if published or check:
        figures = {name: _figures(context, name, size, framework, gpu_type) for name in keys}
        _print_published(context, figures, check, fmt)
        return
    runs_here = (
        _jobs_here(context, keys, size, framework, release, gpu_type)
        if installed is not None
        else None
    )
    if key is not None:
        if installed is not None and not _are_among([key], installed)[0]:
            say(f"note: {key} is not installed here: llmb-install add {key}")
        chosen = context.workloads[key]
        rows = [
            row
            for row in listing.configurations(chosen, framework, release, gpu_type)
            if size in (None, row["size"])
        ]
        print_folded(listing.rows_of(chosen, framework), rows, fmt)
        for text in listing.declared(chosen) if fmt in ("table", "md") else ():
            say(text)
        return
    workloads = context.workloads.values()
    rows = listing.sizes(workloads, framework, release, gpu_type)
    columns = listing.sizes_of(workloads, fmt)
    if installed is not None:
        rows, columns = _mark(context, rows, installed), (*columns, listing.INSTALLED)
    if runs_here is not None:
        rows = [{**row, "here": runs_here[row["workload"], row["size"]]} for row in rows]
        columns = (*columns, listing.HERE)
    # which GPU types a size has elsewhere is in `list -w`
    if runs_here is not None and fmt in ("table", "md"):
        rows = listing.on_this_cluster(rows)
        columns = tuple(
            chosen for chosen in columns if chosen.key not in ("gpu_types", "installed")
        )
    print_all(columns, rows, fmt)


def _jobs_here(
    context: CliContext,
    keys: Sequence[str],
    size: str | None,
    framework: str | None,
    release: str | None,
    gpu_type: str | None,
) -> dict[tuple[str, str], dict[str, Any]] | None:
    """For each size of the workloads ``keys``, by key and size, the jobs that can run here.

    None if that is unknown. ``framework``, ``release`` and ``gpu_type`` restrict the jobs. Prints
    why installed sizes (only ``size`` if given) cannot run, and the fix.
    """
    from llmb.plan import config_layers
    from llmb.plugins.foreign import find_own_install
    from llmb.run.prepare import NO_ROW, NOT_INSTALLED, runnable

    try:
        install = find_own_install(lambda: context.plugins, context.install_option, os.environ)
        config, _ = config_layers.load_config(
            install,
            os.environ,
            types=lambda: context.plugins.gpu_types,
            cluster_types=context.plugins.cluster_types,
        )
    except LlmbError as error:
        say(f"warning: it is unknown which of them run here\n{describe(error)}")
        return None
    if config.kind is None or gpu_type not in (None, config.gpu_type, *config.gpu_types):
        return None
    most_gpus = _most_gpus(config) if gpu_type in (None, config.gpu_type) else None
    config = replace(config, gpu_type=gpu_type or config.gpu_type)
    workloads = (context.workloads[key] for key in keys)
    sizes = list(
        runnable(
            workloads, context.plugins, config, most_gpus, framework=framework, release=release
        )
    )
    notes = grouped(
        (
            # without the experiment's name
            (fault.message.partition(": ")[2] or fault.message, fault.hint),
            f"{entry.workload} {entry.size}",
        )
        for entry in sizes
        if (fault := entry.fault) is not None
        and fault.code not in (NO_ROW, NOT_INSTALLED)
        and size in (None, entry.size)
    )
    for (reason, hint), names in notes.items():
        say(
            f"note: {listed(names, _NAMED)} cannot run here: {reason}"
            + (f"\nhint: {hint}" if hint else "")
        )
    return {
        (entry.workload, entry.size): {
            "runs": entry.runs,
            "dtypes": list(entry.dtypes),
            "scales": list(entry.scales),
            "all_scales": list(entry.all_scales),
            "most_gpus": entry.scales[-1]
            if entry.scales and entry.scales != entry.all_scales
            else None,
            "why": entry.reason or None,
            "code": entry.fault and entry.fault.code,
            "reason": entry.fault and entry.fault.message,
            "hint": entry.fault and entry.fault.hint,
        }
        for entry in sizes
    }


def _most_gpus(config: ClusterConfig) -> int | None:
    """The GPUs that one job can have, if Slurm answers at once, or None if that is unknown.

    Jobs on CPUs have a rank for each node, whatever GPUs the nodes have.
    """
    from llmb.contract.gpus import CPU

    on_cpus = config.rows_for(config.gpu_type) == CPU
    if not config.traits.sbatch_options or config.slurm is None or on_cpus:
        return None
    from llmb.cli.completion import lookups

    partition = config.slurm.gpu.given.get("partition", config.slurm.partition)
    return lookups.most_gpus(str(partition) if partition else None, config.slurm.clusters)


def _find_installed(context: CliContext) -> tuple[str, ...] | None:
    """The installed workloads, or None without an install directory, or with an unreadable one.

    Prints a warning for an unreadable one, and for an LLMB_INSTALL that is not an install
    directory. Raises UsageError for an ``--install`` that is not one.
    """
    from llmb.plan.locate import installed_in
    from llmb.plugins.foreign import CODE as FOREIGN, find_own_install

    option = context.install_option
    named = {"LLMB_INSTALL": os.environ.get("LLMB_INSTALL", "")}
    try:
        install = find_own_install(lambda: context.plugins, option, named)
    except UsageError as error:
        if option is not None:
            raise
        if named["LLMB_INSTALL"] or error.code == FOREIGN:
            say(
                f"warning: {error.message}"
                + (f"\nhint: {error.hint}" if error.code == FOREIGN else "")
            )
        return None
    try:
        return installed_in(install)
    except UsageError as error:
        say(f"warning: the installed workloads are unknown\n{describe(error)}")
        return None


def _mark(
    context: CliContext, rows: Sequence[Mapping[str, Any]], installed: Sequence[str]
) -> list[dict[str, Any]]:
    """Add ``installed`` to the rows and print a note for installed workloads without a plugin."""
    offered = _are_among(installed, list(context.workloads))
    if orphans := [
        name for name, is_offered in zip(installed, offered, strict=True) if not is_offered
    ]:
        say(f"note: installed, but no plugin offers it: {', '.join(orphans)}")
    marks = _are_among([row["workload"] for row in rows], installed)
    return [{**row, "installed": mark} for row, mark in zip(rows, marks, strict=True)]


def _are_among(names: Sequence[str], group: Sequence[str]) -> list[bool]:
    """For each name of a workload, True if ``group`` has it in any spelling."""
    forms = {squash_workload(name) for name in group}
    return [squash_workload(name) in forms for name in names]


def _figures(
    context: CliContext, key: str, size: str | None, framework: str | None, gpu_type: str | None
) -> list[Figure]:
    """The published figures of the workload ``key`` with these values (None: any)."""
    conditions = {"model_size": size, "framework": framework, "gpu_type": gpu_type}
    filters = {name: value for name, value in conditions.items() if value is not None}
    return [
        figure
        for figure in context.figures([key])
        if all(getattr(figure, name) == condition for name, condition in filters.items())
    ]


def _print_published(
    context: CliContext, figures_by_key: Mapping[str, Sequence[Figure]], check: bool, fmt: str
) -> None:
    from llmb.cli.output import print_all, print_runs
    from llmb.cli.reading import own_flops
    from llmb.plan import listing, recompute

    count = sum(map(len, figures_by_key.values()))
    if not check:
        figures = listing.figures(figure for group in figures_by_key.values() for figure in group)
        columns = listing.figure_columns(figures) if fmt in ("table", "md") else listing.FIGURES
        if fmt == "table":
            print_runs(columns, figures, fmt, name="workload")
        else:
            print_all(columns, figures, fmt)
        say(f"{count} published figures" if count else "no published figures")
        return
    disagreements = [
        disagreement
        for key, key_figures in figures_by_key.items()
        for disagreement in recompute.disagreements(
            key_figures, context.workloads[key], partial(own_flops, context, key)
        )
    ]
    print_all(listing.CHECKED, listing.checked(disagreements), fmt)
    rows = len({disagreement.figure for disagreement in disagreements})
    verdict = (
        f"{len(disagreements)} printed values in {rows} of them disagree"
        if disagreements
        else "all printed values agree"
    )
    count = sum(
        figure.step_time_s is not None for group in figures_by_key.values() for figure in group
    )
    say(
        f"{count} published figures checked: {verdict} with the step times (tolerance:"
        f" {recompute.TOLERANCE})"
    )
