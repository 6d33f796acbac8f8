# SPDX-License-Identifier: Apache-2.0
"""`llmb-run submit`: a job list, targets, or everything installed."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import click

from llmb.cli import options as common
from llmb.cli.context import CliContext
from llmb.cli.submit import shell_variables as shell, single, submit_all
from llmb.cli.submit.options import OptionField, SubmitCommand, SubmitOptions, with_options
from llmb.cli.submit.single import SingleOptions
from llmb.cli.submit.submit_all import ListOptions
from llmb.contract.launch_variable import NODES, SCALES
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.plan.launch_variables import names_that_set


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions(ListOptions):
    """Options of a list, of discovery and of targets."""

    workloads: Annotated[
        tuple[str, ...],
        OptionField(
            "Only these workloads, as key or key_size.",
            "-w",
            "--workload",
            "--workloads",
            callback=common.words,
            metavar="W",
        ),
    ]
    size: Annotated[
        str | None, OptionField("Model size of the one workload.", "-s", "--size", metavar="SIZE")
    ]


@click.command("submit", cls=SubmitCommand)
@with_options(TargetOptions)
def command(context: CliContext, options: TargetOptions) -> int:
    """Submit a job list, targets, or everything installed.

    \b
    llmb-run submit jobs.yaml                              a job list
    llmb-run submit -w llama3.1 -s 70b --scale 64,128      one workload
    llmb-run submit -w llama3.1_70b,nemotronh --scale 64   targets
    llmb-run submit --max-scale 512                        everything installed

    With a list, -w, --dtype and the scales narrow it. With -s, it submits one workload at each
    given dtype (default: the workload's) and scale, and reads the variables of other launchers
    (llmb-run docs jobs).
    """
    from llmb.plan.select import Selection

    shell.read_slurm_params(context, os.environ)
    shell.name_unpassed(context, options.env, os.environ)
    joblist = submit_all.joblist_of(options)
    if joblist is None and _is_direct(context, options):
        return single.run(context, _single(options))
    if joblist is not None and not joblist.exists():
        _explain_missing(context, joblist)
    if options.size is not None:
        raise UsageError(
            "-s selects a size of one workload, not of a job list",
            hint="omit it, or -w WORKLOAD_SIZE",
            code="option-without-effect",
            key="--size",
            value=options.size,
        )
    shell.name_unread(os.environ, context.variables)
    chosen = {
        field.name: getattr(options, field.name)
        for field in fields(Selection)
        if field.name != "supported"
    }
    return submit_all.run(context, options, Selection(supported=True, **chosen))


def _is_direct(context: CliContext, options: TargetOptions) -> bool:
    """Return True if one workload and size is named, by options or by -w and variables.

    A benchmark with one size and dtype needs no -s, and no entry in cluster_config.yaml.

    Raises UsageError for a size without exactly one workload, or with scales that only discovery
    selects.
    """
    selects = options.max_scale is not None or options.min_scale or options.exact_scales
    if options.size is None:
        names = names_that_set(context.variables, SCALES, NODES)
        by_variables = any(os.environ.get(name, "").strip() for name in names)
        if selects or len(options.workloads) != 1:
            return False
        return _has_one_kind(context, options.workloads[0]) if options.scales else by_variables
    if len(options.workloads) != 1:
        raise UsageError(
            f"-s {options.size} selects a size of one workload, and {len(options.workloads)} are"
            " named",
            hint="-w WORKLOAD -s SIZE, or -w WORKLOAD_SIZE,WORKLOAD_SIZE",
            code="size-without-workload",
            key="--size",
            value=options.size,
        )
    if selects:
        raise UsageError(
            f"-s {options.size} needs --scale: --max-scale, --min-scale and --exact-scales select"
            " from all sizes",
            hint=f"--scale N, or -w {options.workloads[0]}_{options.size} instead of -s",
            code="scale-conflict",
            key="--size",
            value=options.size,
        )
    return True


def _has_one_kind(context: CliContext, name: str) -> bool:
    """Return True if the workload is known and has one size with one dtype."""
    from llmb.plan.select import split_name

    try:
        key, _ = split_name(name, context.workloads)
    except UsageError:  # discovery reports it
        return False
    sizes = list(context.workloads[key].sizes.values())
    return len(sizes) == 1 and len({dtype for row in sizes[0].rows for dtype in row.dtype}) == 1


def _single(options: TargetOptions) -> SingleOptions:
    return SingleOptions(
        **{field.name: getattr(options, field.name) for field in fields(SubmitOptions)},
        workload=options.workloads[0],
        size=options.size,
        dtypes=options.dtypes,
        scales=options.scales,
        repeats=options.repeats or 1,
    )


def _explain_missing(context: CliContext, path: Path) -> None:
    """Raise UsageError for a word that is no file, but was meant as a dtype or as a target."""
    from llmb.plan.select import split_name

    word = str(path)
    sizes = [size for workload in context.workloads.values() for size in workload.sizes.values()]
    dtypes = {dtype for size in sizes for row in size.rows for dtype in row.dtype}
    hint = f"-d is --dry-run; write --dtype {word}" if word in dtypes else None
    if hint is None:
        try:
            split_name(word, context.workloads)
        except UsageError:
            return
        hint = f"write -w {word}"
    raise UsageError(
        f"there is no job list '{word}'", hint=hint, code="file-missing", key="joblist", value=word
    )
