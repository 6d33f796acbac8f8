# SPDX-License-Identifier: Apache-2.0
"""`llmb-run parse`: what logs measured, also of runs that llmb did not submit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmb.cli import options
from llmb.cli.context import Context, pass_context, say
from llmb.errors import UsageError

if TYPE_CHECKING:
    from llmb.results.foreign import Description
    from llmb.results.result import Result

_STDIN = Path("-")
_COUNT = click.IntRange(min=1)
_OPTION_OF = {"workload": "--workload", "size": "--workload", "dtype": "--dtype", "gpus": "--scale", "gbs": "--gbs"}


@click.command("parse")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")
@options.window_option
@options.reference_option
@click.option("--gpu-type", metavar="TYPE", help="GPU type of logs without a record, for verdict and MFU.")
@click.option("-w", "--workload", metavar="W_SIZE", help="Workload and size of logs without a record.")
@click.option("--dtype", metavar="D", help="Dtype of logs without a record.")
@click.option("--scale", type=_COUNT, metavar="N", help="Number of GPUs of logs without a record.")
@click.option("--gbs", type=_COUNT, metavar="N", help="Global batch of logs without a record.")
@click.option("--full-names", is_flag=True, help="Do not shorten names.")
@options.format_or_junit_option
@pass_context
def command(
    context: Context,
    /,
    paths: tuple[Path, ...],
    window: str | None,
    reference: str | None,
    gpu_type: str | None,
    workload: str | None,
    dtype: str | None,
    scale: int | None,
    gbs: int | None,
    full_names: bool,
    fmt: str,
) -> int:
    """Read logs and show what they measured.

    PATH is a log, a folder with log-*.out files at any depth (default: ./experiments), or - for standard input. Logs
    may be compressed with gzip. Options override what a log or its name says; llmb prints what they override.
    """
    import tempfile

    from llmb.cli.results.judged import judged, print_report, results_of_files
    from llmb.errors import LlmbError
    from llmb.stats.measure import parse_window

    given = _description(context, gpu_type=gpu_type, workload=workload, dtype=dtype, scale=scale, gbs=gbs)
    chosen = parse_window(window) if window is not None else None
    unreadable = list[OSError]()
    with tempfile.TemporaryDirectory() as folder:
        logs = _logs(paths or (Path("experiments"),), folder, unreadable.append)
        results = results_of_files(context, logs, chosen, given)
    results = [_without_copy(result, Path(folder)) for result in results]
    _announce_overridden(results)
    code = print_report(judged(context, results, reference), fmt, full_names=full_names)
    for error in unreadable:
        say(f"warning: cannot read {error.filename}, so its logs are skipped: {error.strerror}")
    return code or (LlmbError.exit_code if unreadable else 0)


def _description(
    context: Context,
    *,
    gpu_type: str | None,
    workload: str | None,
    dtype: str | None,
    scale: int | None,
    gbs: int | None,
) -> Description:
    """What the options say of logs without a record. Raises UsageError with the nearest word."""
    from llmb.planning.select import split_name
    from llmb.results.foreign import Description
    from llmb.text.names import suggest
    from llmb.workload.gpus import known_types

    key, size = (None, None) if workload is None else split_name(workload, context.workloads)
    if gpu_type is not None and gpu_type not in known_types():
        raise _unknown("--gpu-type", gpu_type, suggest(gpu_type, list(known_types())))
    if key is not None and size is None:
        sizes = ", ".join(f"{key}_{name}" for name in context.workloads[key].sizes)
        raise UsageError(
            f"--workload {workload} has no size", hint=f"one of {sizes}", code="size-missing", key="--workload"
        )
    dtypes = sorted({own for kind in known_types().values() for own in kind.peak_tflops} | {"fp32"})
    if dtype is not None and dtype not in dtypes:
        raise _unknown("--dtype", dtype, suggest(dtype, dtypes))
    return Description(workload=key, size=size, dtype=dtype, gpu_type=gpu_type, gpus=scale, gbs=gbs)


def _unknown(option: str, value: str, hint: str) -> UsageError:
    return UsageError(f"{option} {value} is unknown", hint=hint, code="option-unknown-value", key=option, value=value)


def _logs(paths: Sequence[Path], folder: str, unreadable: Callable[[OSError], None]) -> list[Path]:
    """The logs at ``paths``; what comes through a pipe is copied to ``folder``, since a log is read twice."""
    import shutil
    import sys

    from llmb.results.find import logs_at

    found: dict[Path, None] = {}
    for number, path in enumerate(paths):
        if path != _STDIN and not path.is_fifo():
            found |= dict.fromkeys(logs_at(path, unreadable))
            continue
        copy = Path(folder) / ("log-stdin.out" if path == _STDIN else f"log-pipe{number}.out")
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer if path == _STDIN else path.open("rb"), file)
        found[copy] = None
    return list(found)


def _without_copy(result: Result, folder: Path) -> Result:
    """The result, with the path ``-`` where its log is a copy in ``folder``."""
    from dataclasses import replace

    if Path(result.identity.path).parent != folder:
        return result
    return replace(result, identity=replace(result.identity, path=str(_STDIN)))


def _announce_overridden(results: Sequence[Result]) -> None:
    """Print what the options override, each difference once."""
    found = Counter(one for result in results for one in result.identity.overridden if one.setting in _OPTION_OF)
    for one, count in found.items():
        logs = "1 log" if count == 1 else f"{count} logs"
        say(f"note: {_OPTION_OF[one.setting]} sets {one.setting} {one.given} for {logs}, overriding {one.logged}")
