# SPDX-License-Identifier: Apache-2.0
"""``llmb-run accept``: run a plan, verify an archive, show certificates and plans."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from llmb import api
    from llmb_accept.acceptance import Acceptance, WrittenArchive
    from llmb_accept.running import RowCost

NOT_ACCEPTED_CODE, DIFFERS = 3, 1
_format = click.option(
    "--format",
    "fmt",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output format.",
)
# Options that are passed to every submission, with their metavar and help.
_PASSED = {
    "partition": ("NAME", "Partition of the jobs (Slurm)."),
    "account": ("NAME", "Account that the jobs are charged to (Slurm)."),
    "qos": ("NAME", "Quality of service (Slurm)."),
    "reservation": ("NAME", "Run in this reservation (Slurm)."),
    "gpu-type": ("TYPE", "GPU type, on a cluster with several."),
    "image": ("IMAGE", "Another image for all jobs."),
}
_INTERRUPTED = 130  # the exit code after Ctrl-C
_OF_SLURM = ("nodelist", "partition", "account", "qos", "reservation")


def _passed(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, (metavar, text) in reversed(_PASSED.items()):
        command = click.option(f"--{name}", metavar=metavar, help=text)(command)
    return command


class _PlanFirst(click.Group):
    """``accept PLAN`` is ``accept run PLAN``."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            return super().resolve_command(ctx, ["run", *args])
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_option_of_run = args and args[0].startswith("-") and args[0] not in ("-h", "--help")
        return super().parse_args(ctx, ["run", *args] if is_option_of_run else args)


@click.group("accept", cls=_PlanFirst)
def accept() -> None:
    """Accept a cluster by a plan, and verify the certificate.

    `accept PLAN` is short for `accept run PLAN`.
    """


@accept.command("run")
@click.argument("plan_name", metavar="PLAN")
@click.option("--nodelist", metavar="NODES", help="Accept these nodes: n[1-64] (Slurm).")
@click.option("--name", metavar="NAME", help="Name the acceptance (default: the plan's name).")
@click.option("--by", metavar="WHO", help="Who runs it, for the certificate.")
@click.option(
    "--baseline", metavar="NAME", help="Compare with it what has no published figure, and losses."
)
@click.option("--dry-run", "-d", is_flag=True, help="Show the jobs and their GPU-hours.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The archive (default: llmb-accept-NAME.tar.zst).",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write a report on all runs, .html or .md.",
)
@_passed
@_format
@click.pass_obj
def run(
    context: api.CommandContext,
    /,
    plan_name: str,
    nodelist: str | None,
    name: str | None,
    by: str | None,
    baseline: str | None,
    dry_run: bool,
    output: Path | None,
    report: Path | None,
    fmt: str,
    **passed: str | None,
) -> int:
    """Run PLAN, and print the certificate.

    PLAN is a YAML file, or the name of a plan of `accept plans`. Nodes that fail a phase are not in
    the next one. If you interrupt it, the jobs continue, and the same command continues the plan.
    The exit code is 0 if the cluster is ACCEPTED, 3 if it is NOT_ACCEPTED.
    """
    from llmb import api
    from llmb_accept import acceptance as store, running

    root = store.root_of(context.config)
    new = _new(context, plan_name, nodelist, by, baseline, passed)
    current = _continued(root, new, name, is_nodelist_given=nodelist is not None)
    if dry_run:
        return _show_estimates([*running.estimates(context, current)], _hours_of(current), fmt)
    with api.hold_lock(root, current.name):
        # Another command may have begun or completed it before this one had the lock.
        current = _continued(root, new, current.name, is_nodelist_given=nodelist is not None)
        return _carry_out(context, root, current, plan_name, output, report, fmt)


def _carry_out(
    context: api.CommandContext,
    root: Path,
    current: Acceptance,
    plan_name: str,
    output: Path | None,
    report: Path | None,
    fmt: str,
) -> int:
    """Run what is left of an acceptance, write its certificate, and return the exit code."""
    from llmb import api
    from llmb_accept import acceptance as store, certificate, running

    if (finished := store.load_certificate(root, current.name)) is not None:
        api.say(f"{current.name} is complete since {finished['date']}")
        return _print(finished, store.load_archive(root, current.name), fmt)
    path = output or Path(f"llmb-accept-{current.name}.tar.zst")
    _check_free(path)
    if store.load(root, current.name) is None:
        current = _begin(context, root, current)
    else:
        api.say(f"continuing {current.name}, begun {current.created}")
        store.save(root, current)  # somebody else may run it now
    try:
        assessment, evidence = running.complete(context, current)
    except KeyboardInterrupt:
        again = command_to_continue(current, plan_name, output, report, fmt)
        api.say(f"Stopped. The jobs keep running. Continue: {again}")
        raise click.exceptions.Exit(_INTERRUPTED) from None
    except (api.LlmbError, click.ClickException):
        # The nodes, the partition or the plan can be corrected, and the name used again.
        if not running.find_runs(context, current):
            store.forget(root, current.name)
        raise
    issued = certificate.make(current, assessment, evidence, _now())
    store.save_certificate(root, current.name, issued)
    if report is not None and issued["runs"]:
        context.call(["report", *issued["runs"], "-o", str(report)])
    archive = _archive(context, root, issued, path)
    if archive is not None:
        store.save_archive(root, current.name, archive)  # accept show prints its checksum
    return _print(issued, archive, fmt)


def command_to_continue(
    current: Acceptance, plan_name: str, output: Path | None, report: Path | None, fmt: str
) -> str:
    """Return the command that continues an acceptance and writes what this one was to write.

    The nodes and the options of its jobs are recorded, and need not be given again.
    """
    import shlex

    given = {
        "--name": current.name,
        "--by": current.by,
        "--output": output,
        "--report": report,
        "--format": None if fmt == "table" else fmt,
    }
    words = [word for name, value in given.items() if value is not None for word in (name, value)]
    return shlex.join(["llmb-run", "accept", plan_name, *map(str, words)])


def _new(
    context: api.CommandContext,
    plan_name: str,
    nodelist: str | None,
    by: str | None,
    baseline: str | None,
    passed: Mapping[str, str | None],
) -> Acceptance:
    """Return an acceptance of this plan and these nodes. Raises UsageError."""
    import platform

    from llmb import api
    from llmb_accept.acceptance import Acceptance
    from llmb_accept.plan import find_plan, read_plan

    path = find_plan(plan_name)
    text = path.read_text(encoding="utf-8")
    plan = read_plan(text, str(path))
    config = context.config
    if baseline is not None:
        _check_baseline(context, baseline)
    _check_options(config, {"nodelist": nodelist, **passed})
    gpu_type = passed["gpu_type"] or config.gpu_type
    names_nodes = config.traits.sbatch_options and not config.traits.one_machine
    if not names_nodes and not config.traits.one_machine:
        raise api.UsageError(
            f"jobs on cluster type {config.cluster_type} cannot be sent to nodes by name",
            hint="an acceptance needs Slurm, or a single machine",
            code="accept-cluster",
            key="cluster_type",
            value=config.cluster_type,
        )
    named = () if nodelist is None else tuple(api.read_nodes(nodelist, "--nodelist"))
    nodes = named if names_nodes else (platform.node(),)
    words = [
        word
        for key, value in passed.items()
        if value is not None
        for word in (f"--{key.replace('_', '-')}", value)
    ]
    return Acceptance(
        name=plan.name,
        plan_text=text,
        plan_file=path.name,
        cluster=config.cluster_name,
        gpu_type=gpu_type,
        gpus_per_node=config.gpu(gpu_type).gpus_per_node,
        nodes=nodes,
        names_nodes=names_nodes,
        by=by,
        baseline=baseline,
        created=_now(),
        options=tuple(words),
    )


def _check_options(config: api.ClusterConfig, options: Mapping[str, str | None]) -> None:
    """Raise UsageError for an option of Slurm on a cluster without Slurm, as ``submit`` does."""
    from llmb import api

    for name in _OF_SLURM if not config.traits.sbatch_options else ():
        if options[name] is not None:
            kind = config.cluster_type
            raise api.UsageError(
                f"--{name} is an option of Slurm, and this cluster has type {kind}",
                hint=config.traits.instead_of(name),
                code="option-without-effect",
                key=f"--{name}",
                value=kind,
            )


def _check_baseline(context: api.CommandContext, name: str) -> None:
    """Raise UsageError unless there is a baseline of this name."""
    from llmb import api

    _, text = context.call(["baseline", "list", "--format", "json"])
    names = [baseline["name"] for baseline in json.loads(text)]
    if name not in names:
        raise api.UsageError(
            f"there is no baseline '{name}'",
            hint=f"there are {', '.join(names)}" if names else "llmb-run baseline accept NAME",
            code="baseline-unknown",
            key="--baseline",
            value=name,
        )


def _continued(
    root: Path, new: Acceptance, name: str | None, *, is_nodelist_given: bool
) -> Acceptance:
    """Return the acceptance to continue, or ``new`` with a name that is free.

    Raises UsageError if the nodes are open, or if the named one was begun with another plan, other
    nodes or other options of its jobs. Who runs it may change.
    """
    from dataclasses import replace

    from llmb import api
    from llmb_accept import acceptance as store

    chosen = name or new.name
    if name is not None:
        _check_name(name)
    number = 1
    while name is None and store.load_certificate(root, chosen) is not None:
        number += 1
        chosen = f"{new.name}-{number}"
    begun = store.load(root, chosen)
    if begun is None:
        if not new.nodes:
            raise api.UsageError(
                "which nodes?",
                hint="--nodelist n[1-64], without nodes that are down (Slurm: sinfo -N shows them)",
                code="nodes-missing",
                key="--nodelist",
            )
        return replace(new, name=chosen)
    difference = None
    if begun.plan_text != new.plan_text:
        difference = "with another plan"
    elif is_nodelist_given and set(begun.nodes) != set(new.nodes):
        difference = f"with {api.fold_nodes(begun.nodes)}"
    elif new.baseline is not None and new.baseline != begun.baseline:
        difference = f"with the baseline {begun.baseline}" if begun.baseline else "with no baseline"
    else:
        difference = _other_option(begun, new)
    if difference is not None:
        raise api.UsageError(
            f"{chosen} was begun {begun.created} {difference}",
            hint="--name NAME begins another one",
            code="accept-begun",
            key="--name",
            value=chosen,
        )
    return begun if new.by is None else replace(begun, by=new.by)


def _other_option(begun: Acceptance, new: Acceptance) -> str | None:
    """Return how an acceptance was begun, if ``new`` has another value of an option of its jobs.

    An option that is not given again keeps its value.
    """
    before = {"--gpu-type": begun.gpu_type, **_by_name(begun.options)}
    for option, value in _by_name(new.options).items():
        if before.get(option) != value:
            return f"with {option} {before[option]}" if option in before else f"without {option}"
    return None


def _by_name(words: Sequence[str]) -> dict[str, str]:
    return dict(zip(words[::2], words[1::2], strict=True))


def _check_name(name: str) -> None:
    import re

    from llmb import api

    if not re.fullmatch(r"[A-Za-z][\w-]*", name, re.ASCII):
        raise api.UsageError(
            f"'{name}' cannot name an acceptance",
            hint="begin with a letter; use letters, digits, - and _",
            code="name-invalid",
            key="--name",
            value=name,
        )


def _begin(context: api.CommandContext, root: Path, new: Acceptance) -> Acceptance:
    """Write a new acceptance, with all that cannot run here."""
    from dataclasses import replace

    from llmb import api
    from llmb_accept import acceptance as store, running

    rows = [*running.estimates(context, new)]
    begun = replace(new, cannot_run={row.key: row.problem for row in rows if row.problem})
    for row in rows:
        if row.problem:
            api.say(f"cannot run, so it will not be accepted: {row.key}: {row.problem}")
    cost = running.cost_in_words(rows, _hours_of(begun))
    nodes = "1 node" if len(begun.nodes) == 1 else f"{len(begun.nodes)} nodes"
    api.say(f"{begun.name} on {nodes}: {cost}")
    store.save(root, begun)
    return begun


def _hours_of(acceptance: Acceptance) -> str:
    """Return ``GPU-hours``, or ``CPU-hours`` for nodes without GPUs."""
    from llmb import api

    return f"{api.processor([acceptance.gpu_type])}-hours"


def _show_estimates(rows: Sequence[RowCost], unit: str, fmt: str) -> int:
    from dataclasses import asdict

    from llmb import api
    from llmb_accept.certificate import SCHEMA_VERSION
    from llmb_accept.running import cost_in_words, hours_and_most

    total, most = hours_and_most(rows)
    if fmt == "json":
        data = {
            "rows": [asdict(row) for row in rows],
            "gpu_hours": total,
            "most_gpu_hours": most,
        }
        click.echo(json.dumps({"schema_version": SCHEMA_VERSION, **data}, indent=1))
        return 0
    columns = [
        *(api.Column(key=key, whole=True) for key in ("phase", "what")),
        *(api.Column(key=key, right=True) for key in ("jobs", "gpus")),
        api.Column(key="gpu_hours", heading=unit, right=True, show=lambda v: f"{v:.2f}"),
        api.Column(key="problem", heading="cannot run", optional=True),
    ]
    click.echo(api.render_table(columns, [asdict(row) for row in rows]), nl=False)
    click.echo(f"{cost_in_words(rows, unit)}, if every node passes")
    if problems := sum(bool(row.problem) for row in rows):
        click.echo(f"it would be NOT_ACCEPTED: {problems} of {len(rows)} cannot run")
    return 0


def _check_free(path: Path) -> None:
    from llmb import api

    if path.exists():
        raise api.UsageError(
            f"{path} exists",
            hint="-o names another file",
            code="archive-exists",
            key="--output",
            value=str(path),
        )


def _archive(
    context: api.CommandContext, root: Path, certificate: Mapping[str, Any], path: Path
) -> WrittenArchive | None:
    """Write the archive of the acceptance. None without any run, which leaves nothing to send."""
    if not certificate["runs"]:
        return None
    folder = root / certificate["name"]
    context.call(["archive", *certificate["runs"], "--include", str(folder), "-o", str(path)])
    return _written(path)


def _written(path: Path) -> WrittenArchive:
    from llmb_accept.acceptance import WrittenArchive

    return WrittenArchive(path=str(path), size=path.stat().st_size, sha256=_sha256(path))


def _print(certificate: Mapping[str, Any], archive: WrittenArchive | None, fmt: str) -> int:
    """Print a certificate and its line, and return the exit code."""
    from llmb_accept import certificate as pages, judge

    line = pages.line(certificate, None if archive is None else archive.sha256)
    if fmt == "json":
        place = None if archive is None else {"path": archive.path, "sha256": archive.sha256}
        click.echo(json.dumps({**certificate, "archive": place, "line": line}, indent=1))
    else:
        click.echo(pages.as_text(certificate))
        click.echo(line)
    return 0 if certificate["answer"] == judge.ACCEPTED else NOT_ACCEPTED_CODE


def _print_open(certificate: Mapping[str, Any], fmt: str) -> int:
    """Print how far an acceptance is. It has no line to paste, and no answer yet."""
    from llmb_accept import certificate as pages

    if fmt == "json":
        click.echo(json.dumps({**certificate, "archive": None, "line": None}, indent=1))
    else:
        click.echo(pages.as_text(certificate, is_open=True), nl=False)
    return 0


def _sha256(path: Path) -> str:
    import hashlib

    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _now() -> str:
    from datetime import datetime

    return datetime.now().astimezone().isoformat(timespec="seconds")


@accept.command("verify")
@click.argument("archive", type=click.Path(path_type=Path))
@click.option("--sha256", metavar="HEX", help="The checksum in the line of the certificate.")
@_format
@click.pass_obj
def verify(context: api.CommandContext, archive: Path, sha256: str | None, fmt: str) -> int:
    """Recompute the answer of ARCHIVE from its runs alone.

    An archive of which a byte was changed is refused. One that was made anew has another checksum:
    compare it with the line of the certificate, or give it with --sha256. The exit code is that of
    the answer, or 1 if the certificate in the archive says something else.
    """
    from llmb import api
    from llmb_accept import acceptance as store, certificate, judge, running

    opened = context.sealed_archive(archive)
    written = _written(archive)
    digest = written.sha256
    if sha256 is not None and sha256.strip().lower() != digest:
        raise api.LlmbError(
            f"{archive} has another checksum: {digest}",
            hint="it is not the archive of that certificate",
            code="archive-other",
            value=digest,
        )
    root = store.root_of(opened.config)
    names = store.names(root)
    if len(names) != 1:
        raise api.LlmbError(
            f"{archive} has {len(names) or 'no'} acceptances",
            hint="llmb-run accept writes an archive of one",
            code="accept-missing",
            value=str(archive),
        )
    begun = store.load(root, names[0])
    issued = store.load_certificate(root, names[0])
    if begun is None or issued is None:
        raise api.LlmbError(
            f"{archive}: its acceptance is not complete",
            hint="the archive of a complete one has a certificate",
            code="accept-incomplete",
            value=names[0],
        )
    evidence = running.gather(opened, begun, opened.config.llmb_install)
    assessment = judge.assess(begun, evidence)
    again = certificate.make(begun, assessment, evidence, issued["date"])
    changed = certificate.differences(issued, again)
    code = _print(again, written, fmt)
    if changed:
        api.say(f"the certificate in the archive differs in {', '.join(changed)}")
        return DIFFERS
    api.say("verified: the runs in the archive give this answer")
    return code


@accept.command("show")
@click.argument("name", required=False)
@_format
@click.pass_obj
def show(context: api.CommandContext, name: str | None, fmt: str) -> int:
    """Show the certificate of an acceptance.

    NAME is the newest by default. If it is not complete, show how far it is: the exit code is then
    0, as there is no answer yet.
    """
    from llmb import api
    from llmb_accept import acceptance as store, certificate, judge, running

    root = store.root_of(context.config)
    names = store.names(root)
    begun = store.load(root, name or names[-1]) if name or names else None
    if begun is None:
        raise api.UsageError(
            f"there is no acceptance '{name}'" if name else "nothing was accepted here yet",
            hint=f"there are {', '.join(names)}" if names else "llmb-run accept PLAN begins one",
            code="accept-unknown",
            key="NAME",
            value=name or "",
        )
    issued = store.load_certificate(root, begun.name)
    if issued is not None:
        return _print(issued, store.load_archive(root, begun.name), fmt)
    evidence = running.gather(context, begun)
    assessment = judge.assess(begun, evidence)
    api.say(f"{begun.name} is not complete. The command that began it continues it.")
    shown = certificate.make_open(begun, assessment, evidence, begun.created)
    return _print_open(shown, fmt)


@accept.command("plans")
@click.pass_obj
def plans(_context: api.CommandContext) -> int:
    """List the plans that are installed."""
    from llmb import api
    from llmb_accept.plan import read_plan, shipped

    rows = [
        {"plan": name, "title": read_plan(path.read_text("utf-8"), str(path)).title}
        for name, path in shipped().items()
    ]
    columns = [api.Column(key="plan", whole=True), api.Column(key="title")]
    click.echo(api.render_table(columns, rows), nl=False)
    return 0
