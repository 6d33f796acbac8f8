# SPDX-License-Identifier: Apache-2.0
"""``llmb-run export``: one command for each program that reads results."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from llmb import api
    from llmb_export.results import Results

    Select = Callable[[], Results]

_SECTION = "llmb-export"
# Options that are passed to `llmb-run results`, with their other name, metavar and help.
_PASSED = {
    "--session": ("", "ID|NAME", "Only this session, last or all (default: last)."),
    "--since": ("", "AGE", "Sessions of the last 12h, 3d, 1w, or since a date."),
    "--workloads": ("-w", "W", "Only these workloads, as key or key_size."),
    "--node": ("", "NODE", "Ran on it: n7, n[1-4]."),
    "--window": ("", "A-B", "Iterations to measure, numbered as in the log, or 'last'."),
    "--metric": ("", "NAME", "Show and judge only this metric."),
    "--reference": ("", "RELEASE", "Compare with this release (default: the newest)."),
}
_output = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to FILE, complete or not at all (default: stdout).",
)


def _of_results(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add RUNS and the options that select results, which ``command`` takes as ``select``."""

    @wraps(command)
    def selected(
        context: api.CommandContext,
        /,
        runs: tuple[str, ...],
        source: str | None,
        **options: Any,
    ) -> Any:
        words = [*runs]
        for name in _PASSED:
            key = name.removeprefix("--")
            words += [word for value in options.pop(key) for word in (name, value)]
        return command(context, select=partial(_find, context, words, source), **options)

    for name, (short, metavar, text) in reversed(_PASSED.items()):
        names = [short, name] if short else [name]
        selected = click.option(*names, metavar=metavar, multiple=True, help=text)(selected)
    text = "Results in a file of `--format json`, - for stdin."
    selected = click.option("--from", "source", metavar="FILE", help=text)(selected)
    return click.pass_obj(click.argument("runs", nargs=-1)(selected))


def _find(context: api.CommandContext, words: Sequence[str], source: str | None) -> Results:
    from llmb import api
    from llmb_export import results

    if source is None:
        return results.select(context, words)
    if words:
        message, hint = "--from has its own runs", "omit RUNS and the options that select them"
        raise api.UsageError(message, hint=hint, code="options-conflict", key="--from")
    if source == "-":
        return results.read(sys.stdin.read(), "stdin")
    return results.read(_read(Path(source), "--from"), source)


def _read(path: Path, key: str) -> str:
    """Return the text of a user's file. Raises UsageError."""
    from llmb import api

    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{key}: {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        hint = "check the name and the permissions"
        raise api.UsageError(
            message, hint=hint, code="file-unreadable", key=key, value=str(path)
        ) from error


def _write(text: str, output: Path | None) -> None:
    """Print ``text``, or write it to the file ``output``. Raises UsageError, LlmbError."""
    from llmb import api

    if output is None:
        click.echo(text, nl=False)
        return
    if not output.absolute().parent.is_dir():
        message = f"--output {output}: its folder does not exist"
        hint = f"create it: mkdir -p {shlex.quote(str(output.parent))}"
        raise api.UsageError(
            message, hint=hint, code="folder-missing", key="--output", value=str(output)
        )
    api.write_file(output, text)


@click.group("export")
def export() -> None:
    """Write results for other programs, and post them.

    RUNS and options select the runs as in `llmb-run results`, and the exit code is the same.
    """


@export.command("openmetrics")
@_of_results
@_output
def openmetrics(context: api.CommandContext, /, select: Select, output: Path | None) -> int:
    """Write OpenMetrics text for Prometheus.

    `-o DIR/llmb.prom` in the folder of node_exporter's textfile collector makes Prometheus read it.
    """
    from llmb_export.openmetrics import render

    results = select()
    _write(render(results), output)
    return results.exit_code


@export.command("ctrf")
@_of_results
@_output
def ctrf(context: api.CommandContext, /, select: Select, output: Path | None) -> int:
    """Write a report in the Common Test Report Format (CTRF)."""
    from llmb_export.ctrf import render

    results = select()
    _write(render(results), output)
    return results.exit_code


@export.command("github")
@_of_results
def github(context: api.CommandContext, /, select: Select) -> int:
    """Annotate a step of GitHub Actions.

    Bad runs become errors, undecided ones and those with WARN or SUSPICIOUS become warnings. A
    table of all runs is added to the file that GITHUB_STEP_SUMMARY names.
    """
    from llmb import api
    from llmb_export import github

    results = select()
    click.echo(github.workflow_commands(results), nl=False)
    if name := os.environ.get("GITHUB_STEP_SUMMARY"):
        path = Path(name)
        try:
            used = path.stat().st_size if path.exists() else 0
            with path.open("a", encoding="utf-8", errors="replace") as stream:
                stream.write(github.summary(results, used=used))
        except OSError as error:
            reason = error.strerror or error
            api.say(f"warning: the summary of the step cannot be written to {name}: {reason}")
    return results.exit_code


@export.command("webhook")
@_of_results
@click.option("--url", metavar="URL", help="Address (default: webhook_url of the configuration).")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with a token for `Authorization: Bearer`.",
)
@click.option(
    "--attempts",
    type=click.IntRange(min=1),
    default=5,
    metavar="N",
    help="Give up after N attempts (default: 5, in 150 s).",
)
def webhook(
    context: api.CommandContext,
    /,
    select: Select,
    url: str | None,
    token_file: Path | None,
    attempts: int,
) -> int:
    """Post results as JSON to a web address.

    If nobody accepts them, a warning is printed, and the exit code stays that of the results.
    """
    from llmb import api
    from llmb_export import webhook

    url, token_file = _target(context, url, token_file)
    token = "" if token_file is None else _read(token_file.expanduser(), "--token-file").strip()
    results = select()
    reason = webhook.deliver(url, results.data, token=token, attempts=attempts)
    place = webhook.place_of(url)
    api.say(
        f"warning: {place} did not accept the results: {reason}" if reason else f"sent to {place}"
    )
    return results.exit_code


def _target(
    context: api.CommandContext, url: str | None, token_file: Path | None
) -> tuple[str, Path | None]:
    """Return the address and the file of its token, by options or else by the configuration."""
    from llmb import api

    if url is None:
        section: Mapping[str, Any] = context.config.plugins.get(_SECTION) or {}
        url = section.get("webhook_url")
        if token_file is None and (name := section.get("webhook_token_file")):
            token_file = Path(name)
    parts = urlsplit(url or "")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        message = "no address for the results" if url is None else "--url is no http address"
        hint = "--url https://host/path, or plugins: {llmb-export: {webhook_url: ...}}"
        raise api.UsageError(message, hint=hint, code="url-invalid", key="--url")
    if parts.username is not None:
        message, hint = "the address has a password", "write a token to a file: --token-file FILE"
        raise api.UsageError(message, hint=hint, code="url-invalid", key="--url")
    return str(url), token_file


@export.command("dashboard")
@_output
def dashboard(output: Path | None) -> int:
    """Write the Grafana dashboard of these metrics."""
    _write(Path(__file__).with_name("dashboard.json").read_text("utf-8"), output)
    return 0
