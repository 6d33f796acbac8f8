# SPDX-License-Identifier: Apache-2.0
"""`llmb-run list`: the workloads, the rows of one workload, and the published figures."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from llmb import config as configuration
from llmb.cli import options
from llmb.cli.context import Context, pass_context, say
from llmb.errors import KeyFaultError, LlmbError, UsageError, describe
from llmb.text.names import find_workload_and_size, listed, squash_workload, suggest
from llmb.workload.published import Figure

HERE = ("runs", "dtypes", "scales", "all_scales", "most_gpus", "why", "code", "reason", "hint")  # the fields of `here`
_NAMED = 4  # sizes in a note


@click.command("list")
@click.option("-w", "--workload", metavar="W", help="Show all rows of one workload, or of one size: W_SIZE.")
@click.option("--framework", metavar="NAME", help="Only rows of one framework: nemo or bridge.")
@click.option("--gpu-type", metavar="TYPE", help="Only rows of one GPU type.")
@click.option("--release", metavar="RELEASE", help="Only rows of one image release of Megatron-Bridge.")
@click.option("--published", is_flag=True, help="Show the published figures.")
@click.option("--check", is_flag=True, help="Check published figures against their step times.")
@options.format_option
@options.install_option
@pass_context
def command(
    context: Context,
    workload: str | None,
    framework: str | None,
    gpu_type: str | None,
    release: str | None,
    published: bool,
    check: bool,
    fmt: str,
) -> None:
    """Show the workloads, and which of them run here."""
    from llmb.cli.output import print_all
    from llmb.planning import framework as frameworks, listing
    from llmb.workload.bridge import check_release

    if framework is not None:
        frameworks.check_framework(framework)
    if release is not None:
        try:
            check_release(release)
        except KeyFaultError as error:
            raise UsageError(str(error), hint=error.hint, code=error.code, key="--release", value=release) from error
    if gpu_type is not None:
        every = (row for own in context.workloads.values() for row in listing.configurations(own))
        known_types = sorted({name for row in every for name in row["gpu"]})
        if gpu_type not in known_types:
            message, hint = f"--gpu-type: no row has '{gpu_type}'", suggest(gpu_type, known_types)
            raise UsageError(message, hint=hint, code="gpu-type-unknown", key="--gpu-type", value=gpu_type)
    installed = _find_installed(context.install_option)
    sizes = {name: list(known.sizes) for name, known in context.workloads.items()}
    key, size = (None, None) if workload is None else find_workload_and_size(workload, sizes)
    keys = [key] if key else list(context.workloads)
    if published or check:
        figures = {name: _figures(context, name, size, framework, gpu_type) for name in keys}
        _print_published(context, figures, check, fmt)
        return
    here = _here(context, keys, size, framework, release, gpu_type) if installed is not None else None
    if key is not None:
        if installed is not None and not _are_among([key], installed)[0]:
            say(f"note: {key} is not installed here: llmb-install add {key}")
        one = context.workloads[key]
        rows = [row for row in listing.configurations(one, framework, release, gpu_type) if size in (None, row["size"])]
        print_all(listing.rows_of(one, framework), rows, fmt)
        for text in listing.declared(one) if fmt in ("table", "md") else ():
            say(text)
        return
    known = context.workloads.values()
    rows, columns = listing.sizes(known, framework, release, gpu_type), listing.sizes_of(known, fmt)
    if installed is not None:
        rows, columns = _mark(context, rows, installed), (*columns, listing.INSTALLED)
    if here is not None:
        rows = [{**row, "here": here[row["workload"], row["size"]]} for row in rows]
        columns = (*columns, listing.HERE)
    if here is not None and fmt in ("table", "md"):  # which GPU types a size has elsewhere is in `list -w`
        rows = listing.on_this_cluster(rows)
        columns = tuple(one for one in columns if one.key not in ("gpu_types", "installed"))
    print_all(columns, rows, fmt)


def _here(
    context: Context,
    keys: Sequence[str],
    size: str | None,
    framework: str | None,
    release: str | None,
    gpu_type: str | None,
) -> dict[tuple[str, str], dict[str, Any]] | None:
    """Whether each size of the workloads ``keys`` runs here, as data by key and size; None if that is unknown.

    With ``framework``, ``release`` and ``gpu_type`` as a job would ask for them. Prints why installed sizes (only
    ``size`` if given) cannot run, and the fix.
    """
    from llmb.submission.prepare import NO_ROW, NOT_INSTALLED, runnable

    try:
        install = configuration.find_install(context.install_option, os.environ)
        config, _ = configuration.load_config(
            install, os.environ, types=lambda: context.plugins.gpu_types, cluster_types=context.plugins.cluster_types
        )
    except LlmbError as error:
        say(f"warning: it is unknown which of them run here\n{describe(error)}")
        return None
    if config.kind is None or gpu_type not in (None, config.gpu_type, *config.gpu_types):
        return None
    most = _most_gpus(config) if gpu_type in (None, config.gpu_type) else None
    config = replace(config, gpu_type=gpu_type or config.gpu_type)
    asked = (context.workloads[key] for key in keys)
    found = list(runnable(asked, context.plugins, config, most, framework=framework, release=release))
    notes: dict[tuple[str, str | None], list[str]] = {}
    for one in found:
        if one.fault is not None and one.fault.code not in (NO_ROW, NOT_INSTALLED) and size in (None, one.size):
            reason = one.fault.message.partition(": ")[2] or one.fault.message  # without the experiment's name
            notes.setdefault((reason, one.fault.hint), []).append(f"{one.workload} {one.size}")
    for (reason, hint), names in notes.items():
        say(f"note: {listed(names, _NAMED)} cannot run here: {reason}" + (f"\nhint: {hint}" if hint else ""))
    return {
        (one.workload, one.size): {
            "runs": one.runs,
            "dtypes": list(one.dtypes),
            "scales": list(one.scales),
            "all_scales": list(one.all_scales),
            "most_gpus": one.scales[-1] if one.scales and one.scales != one.all_scales else None,
            "why": one.why or None,
            "code": one.fault and one.fault.code,
            "reason": one.fault and one.fault.message,
            "hint": one.fault and one.fault.hint,
        }
        for one in found
    }


def _most_gpus(config: configuration.ClusterConfig) -> int | None:
    """The GPUs that one job can have, as far as Slurm says so at once; None where it is unknown."""
    if not config.traits.sbatch_options or config.slurm is None:
        return None
    from llmb.cli.completion import lookups

    partition = config.slurm.gpu.given.get("partition", config.slurm.partition)
    return lookups.most_gpus(str(partition) if partition else None)


def _find_installed(option: Path | None) -> tuple[str, ...] | None:
    """The installed workloads; None without an install directory, or with one that cannot be read.

    A warning is printed for one that cannot be read, and for an LLMB_INSTALL that is not an install directory. Raises
    UsageError for an ``option`` that is not one.
    """
    from llmb.config.exemplar import CODE as EXEMPLAR
    from llmb.config.locate import find_install, installed_in

    named = {"LLMB_INSTALL": os.environ.get("LLMB_INSTALL", "")}
    try:
        install = find_install(option, named)
    except UsageError as error:
        if option is not None:
            raise
        if named["LLMB_INSTALL"] or error.code == EXEMPLAR:
            say(f"warning: {error.message}" + (f"\nhint: {error.hint}" if error.code == EXEMPLAR else ""))
        return None
    try:
        return installed_in(install)
    except UsageError as error:
        say(f"warning: the installed workloads are unknown\n{describe(error)}")
        return None


def _mark(context: Context, rows: Sequence[Mapping[str, Any]], installed: Sequence[str]) -> list[dict[str, Any]]:
    """The rows with a field ``installed``. Prints a note for installed workloads that no plugin offers."""
    offered = _are_among(installed, list(context.workloads))
    if orphans := [name for name, is_offered in zip(installed, offered, strict=True) if not is_offered]:
        say(f"note: installed, but no plugin offers it: {', '.join(orphans)}")
    marks = _are_among([row["workload"] for row in rows], installed)
    return [{**row, "installed": mark} for row, mark in zip(rows, marks, strict=True)]


def _are_among(names: Sequence[str], others: Sequence[str]) -> list[bool]:
    """For each name of a workload, whether it is one of the ``others`` in any spelling."""
    forms = {squash_workload(name) for name in others}
    return [squash_workload(name) in forms for name in names]


def _figures(context: Context, key: str, size: str | None, framework: str | None, gpu_type: str | None) -> list[Figure]:
    """The published figures of the workload ``key`` with these values; None is any."""
    wanted = {"model_size": size, "framework": framework, "gpu_type": gpu_type}
    given = {name: value for name, value in wanted.items() if value is not None}
    return [one for one in context.figures([key]) if all(getattr(one, name) == own for name, own in given.items())]


def _print_published(context: Context, found: Mapping[str, Sequence[Figure]], check: bool, fmt: str) -> None:
    from llmb.cli.output import print_all, print_runs
    from llmb.cli.reading import own_flops
    from llmb.planning import listing, recompute

    count = sum(map(len, found.values()))
    if not check:
        figures = listing.figures(figure for own in found.values() for figure in own)
        columns = listing.figure_columns(figures) if fmt in ("table", "md") else listing.FIGURES
        if fmt == "table":
            print_runs(columns, figures, fmt, name="workload")
        else:
            print_all(columns, figures, fmt)
        say(f"{count} published figures" if count else "no published figures")
        return
    wrong = []
    for key in found:
        wrong += recompute.disagreements(found[key], context.workloads[key], partial(own_flops, context, key))
    print_all(listing.CHECKED, listing.checked(wrong), fmt)
    rows = len({one.figure for one in wrong})
    what = f"{len(wrong)} printed values in {rows} of them disagree" if wrong else "all printed values agree"
    count = sum(one.step_time_s is not None for own in found.values() for one in own)
    say(f"{count} published figures checked: {what} with the step times (tolerance: {recompute.TOLERANCE})")
