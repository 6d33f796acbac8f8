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

from llmb.archive.contents import Chosen, Content, Manifest, choose, content_of
from llmb.archive.names import FoundNames, hosts_of, keys_in, sites_of
from llmb.archive.redact import Redaction, anonymous, redaction
from llmb.cli import options
from llmb.cli.context import Context, pass_context, say
from llmb.cli.results import Choice, choice_options, gather
from llmb.config.locate import ARCHIVE
from llmb.config.schema import ClusterConfig
from llmb.errors import UsageError
from llmb.results.result import Result
from llmb.runs.record import RunRecord
from llmb.system import console, files, process, secrets
from llmb.system.secrets import is_secret_name
from llmb.text.typed import to_data


@click.command("archive")
@click.argument("runs", nargs=-1)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="The archive, FILE.tar.zst.")
@click.option("--anonymous", "is_anonymous", is_flag=True, help="Also replace users, hosts, addresses and folders.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@choice_options
@options.read_option
@pass_context
def command(
    context: Context, runs: tuple[str, ...], output: Path | None, is_anonymous: bool, force: bool, choice: Choice
) -> int:
    """Write RUNS (default: all runs) to one file, without secrets.

    For a colleague or a vendor: records, logs, scripts and measurements, the configuration and what is installed,
    without profiles and checkpoints. Reading commands take the archive instead of an install directory.
    """
    from llmb.archive.tar_file import write

    found = gather(context, context.runs(runs), choice)
    if not found:
        raise UsageError("there is no run to archive", hint="llmb-run jobs", code="runs-missing", key="RUNS")
    now = datetime.now().astimezone()
    config = context.config
    path = output or Path(f"llmb-{config.cluster_name if not is_anonymous else 'runs'}-{now:%Y%m%d-%H%M}{ARCHIVE}")
    if not path.name.endswith(ARCHIVE):
        path = path.with_name(path.name + ARCHIVE)
    if path.exists() and not force:
        message = f"{path} exists"
        raise UsageError(message, hint="--force overwrites it", code="archive-exists", key="--output", value=str(path))
    records = [record for record, _ in found]
    chosen = [*choose(config, records)]
    own = _redaction(config, found, chosen, is_anonymous)
    manifest = write(path, chosen, own, runs=len(found), created=now)
    announce(path, manifest)
    return 0


def announce(path: Path, manifest: Manifest) -> None:
    """Print what the archive has, what it lacks, and how to read it."""
    from llmb.archive.tar_file import checksum

    # From a pipe, nothing can be read again.
    known = f", {path.stat().st_size / 1e3:,.0f} kB, sha256 {checksum(path)}" if path.is_file() else ""
    runs = f"{manifest.runs} run{'s' if manifest.runs > 1 else ''}"
    names = "replaced where they were found" if manifest.is_anonymous else "kept (--anonymous replaces them)"
    say(f"{path}: {runs}, {len(manifest.files)} files{known}")
    say(f"secrets found and replaced: {manifest.secrets}; names of users, hosts and folders, and addresses: {names}")
    omitted = [one for one in manifest.omitted.values() if one.reason not in ("lock", "cache")]
    if omitted:
        counts = Counter(one.reason for one in omitted)
        parts = (f"{count} {reason}" for reason, count in sorted(counts.items()))
        size = sum(one.bytes for one in omitted) / 1e6
        say(f"not in it, and listed in its manifest: {', '.join(parts)} ({size:,.1f} MB)")
    say(f"look through it before you send it: tar --zstd -tvf {path}")
    console.echo(
        f"read it: llmb-run results {shlex.quote(str(path))}; report, compare, explain, jobs show and more take it too",
        err=True,
    )


def _redaction(
    config: ClusterConfig, found: Sequence[tuple[RunRecord, Result]], chosen: Sequence[Chosen], is_anonymous: bool
) -> Redaction:
    """What is removed: the values of secrets that are known here, and on request names."""
    own = [value for name, value in os.environ.items() if is_secret_name(name)]
    own += secrets.find(secrets.names(), {}).values()
    if not is_anonymous:
        return redaction(own)
    records = [record for record, _ in found]
    home = files.expand("~")
    seen = FoundNames(
        hosts={socket.gethostname(), *(record.submitter.host for record in records)},
        users={process.user_name() or "", home.name},
    )
    for record, result in found:
        seen.hosts |= {*(result.log.hosts if result.log is not None else ()), *hosts_of(record)}
    for one in chosen:
        if isinstance(content := content_of(one.path), Content):
            seen.add(content.text)
    folders: dict[PurePath, str] = {config.llmb_install: "/llmb", home: "/home/user"}
    if config.experiments_root is not None:
        folders[config.experiments_root] = "/llmb/workloads"
    names = anonymous(seen.users, seen.hosts, folders, sites_of(config, records))
    # A key of llmb's own files that was replaced would make them unreadable.
    keys = keys_in(to_data(config)).union(*(keys_in(to_data(record)) for record in records))
    if kept := sorted(name for name in names if name.lower() in keys):
        say(f"warning: these names are kept, as files of llmb have keys of that name: {', '.join(kept)}")
    parts = {part for one in chosen for part in PurePath(one.name).parts}
    homes = sorted(seen.homes - seen.users - parts)
    return redaction(
        own,
        {name: text for name, text in names.items() if name not in kept},
        {name: f"user{number}" for number, name in enumerate(homes, len(seen.users) + 1)},
    )
