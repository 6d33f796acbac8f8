# SPDX-License-Identifier: Apache-2.0
"""`llmb-run archive`: one file with records, logs and configuration of runs."""

import os
import shlex
import socket
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path, PurePath

import click

from llmb.cli import options
from llmb.cli.choice import Choice, choice_options, choose_runs, gather
from llmb.cli.context import CliContext, pass_context, say
from llmb.cli.output import check_folder
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.core import console, files, process, secrets
from llmb.core.secrets import is_secret_name
from llmb.core.typed import to_data
from llmb.errors import UsageError
from llmb.measure.result import Result
from llmb.plan.locate import ARCHIVE
from llmb.run import sessions
from llmb.show.archive.contents import ArchiveManifest, Content, SourceFile, choose, content_of
from llmb.show.archive.names import FoundNames, hosts_of, keys_in, sites_of
from llmb.show.archive.redact import Redaction, anonymous, redaction


@click.command("archive")
@click.argument("runs", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The archive, FILE.tar.zst.",
)
@click.option(
    "--anonymous",
    "is_anonymous",
    is_flag=True,
    help="Also replace users, hosts, addresses and folders.",
)
@click.option(
    "--include",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="Add a file or folder of the install directory.",
)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@choice_options
@options.read_option
@pass_context
def command(
    context: CliContext,
    runs: tuple[str, ...],
    output: Path | None,
    is_anonymous: bool,
    include: tuple[Path, ...],
    force: bool,
    choice: Choice,
) -> int:
    """Write RUNS (default: all runs) to one file, without secrets.

    For a colleague or a vendor: records, logs, scripts and measurements, the configuration and what
    is installed, without profiles and checkpoints. Reading commands take the archive instead of an
    install directory.
    """
    from llmb.show.archive.tar_file import write

    chosen = choose_runs(context.runs(), runs, choice, by_default=(sessions.ALL,))
    measured = gather(context, chosen, choice)
    if not measured:
        raise UsageError(
            "there is no run to archive", hint="llmb-run jobs", code="runs-missing", key="RUNS"
        )
    now = datetime.now().astimezone()
    config = context.config
    path = output or Path(
        f"llmb-{config.cluster_name if not is_anonymous else 'runs'}-{now:%Y%m%d-%H%M}{ARCHIVE}"
    )
    if not path.name.endswith(ARCHIVE):
        path = path.with_name(path.name + ARCHIVE)
    check_folder(path)
    if path.exists() and not force:
        raise UsageError(
            f"{path} exists",
            hint="--force overwrites it",
            code="archive-exists",
            key="--output",
            value=str(path),
        )
    records = [record for record, *_ in measured]
    contents = [*choose(config, records, [path.absolute() for path in include])]
    redacted = _redaction(
        config, records, [result for *_, result in measured], contents, is_anonymous
    )
    manifest = write(path, contents, redacted, runs=len(records), created=now)
    announce(path, manifest)
    return 0


def announce(path: Path, manifest: ArchiveManifest) -> None:
    """Print the contents of the archive, what it lacks, and the command that reads it."""
    from llmb.show.archive.tar_file import checksum

    # From a pipe, nothing can be read again.
    size_and_sum = (
        f", {path.stat().st_size / 1e3:,.0f} kB, sha256 {checksum(path)}" if path.is_file() else ""
    )
    runs = f"{manifest.runs} run{'s' if manifest.runs > 1 else ''}"
    names = (
        "replaced where they were found"
        if manifest.is_anonymous
        else "kept (--anonymous replaces them)"
    )
    say(f"{path}: {runs}, {len(manifest.files)} files{size_and_sum}", links=[path])
    say(
        f"secrets found and replaced: {manifest.secrets}; names of users, hosts and folders, and"
        f" addresses: {names}"
    )
    omitted = [file for file in manifest.omitted.values() if file.reason != "cache"]
    if omitted:
        counts = Counter(file.reason for file in omitted)
        parts = (f"{count} {reason}" for reason, count in sorted(counts.items()))
        size = sum(file.bytes for file in omitted) / 1e6
        say(f"not in it, and listed in its manifest: {', '.join(parts)} ({size:,.1f} MB)")
    say(f"Look through it before you send it: tar --zstd -tvf {shlex.quote(str(path))}")
    console.echo(
        f"Read it: llmb-run results {shlex.quote(str(path))}\n"
        "report, compare, explain, jobs show and more take it too",
        err=True,
    )


def _redaction(
    config: ClusterConfig,
    records: Sequence[RunRecord],
    results: Sequence[Result],
    contents: Sequence[SourceFile],
    is_anonymous: bool,
) -> Redaction:
    """The texts to remove: the values of secrets that are known here, and on request names."""
    secret_values = [value for name, value in os.environ.items() if is_secret_name(name)]
    secret_values += secrets.find(secrets.names(), {}).values()
    if not is_anonymous:
        return redaction(secret_values)
    home = files.expand("~")
    found = FoundNames(
        hosts={socket.gethostname(), *(record.submitter.host for record in records)},
        users={process.user_name() or "", home.name},
    )
    for record, result in zip(records, results, strict=True):
        found.hosts |= {*(result.log.hosts if result.log is not None else ()), *hosts_of(record)}
    for file in contents:
        if isinstance(content := content_of(file.path), Content):
            found.add(content.text)
    folders: dict[PurePath, str] = {config.llmb_install: "/llmb", home: "/home/user"}
    if config.experiments_root is not None:
        folders[config.experiments_root] = "/llmb/workloads"
    names = anonymous(found.users, found.hosts, folders, sites_of(config, records))
    # A key of llmb's own files that was replaced would make them unreadable.
    keys = keys_in(to_data(config)).union(*(keys_in(to_data(record)) for record in records))
    excepted = {name for name in names if name.lower() in keys}
    homes = found.homes - found.users
    kept_homes = homes & _needed_parts(contents)
    if kept_names := sorted(excepted | kept_homes):
        say(
            "warning: these names are not replaced, because llmb's files have keys of that name, or"
            f" are named so: {', '.join(kept_names)}"
        )
    homes = homes - kept_homes
    return redaction(
        secret_values,
        {name: text for name, text in names.items() if name not in excepted},
        {name: f"user{number}" for number, name in enumerate(sorted(homes), len(found.users) + 1)},
    )


_LEVELS = 5  # workloads/WORKLOAD/experiments/EXPERIMENT/RUN


def _needed_parts(contents: Sequence[SourceFile]) -> set[str]:
    """Return the parts of paths by which llmb finds runs and files: of no other folder in a run."""
    paths = [PurePath(file.name).parts for file in contents]
    return {part for parts in paths for part in (*parts[:_LEVELS], parts[-1])}
