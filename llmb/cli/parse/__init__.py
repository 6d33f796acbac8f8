# SPDX-License-Identifier: Apache-2.0
"""`llmb-run parse`: what logs say, also ones that llmb did not make."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context, say
from llmb.cli.parse.description import description, description_options

_STDIN = Path("-")


@click.command("parse")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")
@options.window_option
@options.reference_option
@description_options
@click.option("--full-names", is_flag=True, help="Do not shorten names.")
@options.format_or_junit_option
@pass_context
def command(
    context: Context,
    /,
    paths: tuple[Path, ...],
    window: str | None,
    reference: str | None,
    full_names: bool,
    fmt: str,
    **said: Any,
) -> int:
    """Read logs and show what they measured.

    PATH is a log, a folder whose log-*.out are read wherever they lie in it (default ./experiments), or - for standard
    input. A log may be packed by gzip.
    """
    import tempfile
    from dataclasses import replace

    from llmb.cli.results.judged import judged, print_report, results_of_files
    from llmb.errors import LlmbError
    from llmb.stats.measure import parse_window

    given = description(context, said)
    chosen = parse_window(window) if window is not None else None
    left = list[OSError]()
    with tempfile.TemporaryDirectory() as folder:
        logs = _logs(paths or (Path("experiments"),), folder, left.append)
        results = results_of_files(context, logs, chosen, given)
    results = [replace(one, path="-") if Path(one.path).parent == Path(folder) else one for one in results]
    code = print_report(judged(context, results, reference), fmt, full_names=full_names)
    for error in left:
        say(f"warning: {error.filename} cannot be read, so its logs are left out: {error.strerror}")
    return code or (LlmbError.exit_code if left else 0)


def _logs(paths: Sequence[Path], folder: str, left_out: Callable[[OSError], None]) -> list[Path]:
    """The logs that ``paths`` mean; what comes through a pipe is kept in ``folder``, since a log is read twice."""
    import shutil
    import sys

    from llmb.results import logs_at

    found: dict[Path, None] = {}
    for number, path in enumerate(paths):
        if path != _STDIN and not path.is_fifo():
            found |= dict.fromkeys(logs_at(path, left_out))
            continue
        kept = Path(folder) / ("log-stdin.out" if path == _STDIN else f"log-pipe{number}.out")
        with kept.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer if path == _STDIN else path.open("rb"), file)
        found[kept] = None
    return list(found)
