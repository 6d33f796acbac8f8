# SPDX-License-Identifier: Apache-2.0
"""`llmb-run parse`: what logs measured, also of runs that llmb did not submit."""

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from llmb.cli import options, reading
from llmb.cli.context import Context, pass_context, say
from llmb.cli.results import judged, print_report
from llmb.cli.submit.overrides import parse_set
from llmb.errors import Fault, InputFaults, LlmbError, UsageError
from llmb.planning import request_faults, select
from llmb.plugins.trial import readers_of_logs
from llmb.results import describe_log, find, log_result
from llmb.results.description import Description
from llmb.results.result import SUCCESS, Result
from llmb.results.run_result import LogReader
from llmb.runs import record, store
from llmb.runs.state import COMPLETED, UNKNOWN, JobState
from llmb.stats.measure import Window, parse_window
from llmb.system.shell import map_many
from llmb.text.names import suggest
from llmb.workload import bridge, gpus, switches

_FIELDS = {"num_layers": "layers"}  # what a description calls them, where not the same
_OF_LOGS = ("max_steps",)  # what a log itself says


def with_settings(context: Context, given: Description, text: Sequence[str]) -> Description:
    """``given`` with the pairs ``text`` of ``--set``. Raises InputFaults with every fault."""
    faults: list[Fault] = []
    workload = context.workloads.get(given.workload or "")
    size = None if workload is None else given.size or workload.default_size
    known = () if workload is None else request_faults.known_names(workload, size)
    usable = None if workload is None else [name for name in known if name not in _OF_LOGS]
    params, words, own = parse_set(text, context.parameters, faults, usable)
    for name in (*_OF_LOGS, *words):
        if name in params or name in words:
            message, hint = f"--set {name}: the log contains it", "omit it"
            faults.append(Fault(message=message, hint=hint, code="param-of-log", key=name))
    if given.gbs is not None and params.get("gbs", given.gbs) != given.gbs:
        message, hint = f"--gbs {given.gbs} and --set gbs={params['gbs']} differ", "give one of them"
        faults.append(Fault(message=message, hint=hint, code="option-conflict", key="gbs", value=params["gbs"]))
    if workload is not None and size is not None:
        named = [*params, *(["gbs"] if given.gbs is not None else [])]
        faults += request_faults.faults_of_parameters(workload, size, {name: (value,) for name, value in own.items()})
        wrong = request_faults.faults_of_training(
            workload, size, dict.fromkeys(named), switches.NO_SWITCHES, profile=False
        )
        faults += [replace(fault, hint="omit it") for fault in wrong]
    if faults:
        raise InputFaults(faults)
    values = {_FIELDS.get(name, name): value for name, value in params.items()}
    return replace(given, **values, parameters=own or None)  # type: ignore[arg-type] # each is a whole number


_COUNT = click.IntRange(min=1)
_STDIN = Path("-")
_OPTION_OF = {
    **{"workload": "--workload", "size": "--workload", "dtype": "--dtype", "gpus": "--scale", "gbs": "--gbs"},
    **{"framework": "--framework", "release": "--release"},
}


@click.command("parse")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")
@options.window_option
@options.reference_option
@click.option("--gpu-type", metavar="TYPE", help="GPU type of logs without a record, for verdict and MFU.")
@click.option("-w", "--workload", metavar="W_SIZE", help="Workload and size of logs without a record.")
@click.option("--dtype", metavar="D", help="Dtype of logs without a record.")
@click.option("--scale", type=_COUNT, metavar="N", help="Number of GPUs of logs without a record.")
@click.option("--gbs", type=_COUNT, metavar="N", help="Global batch of logs without a record.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of logs without a record.")
@click.option("--framework", metavar="NAME", help="Framework of logs without a record: nemo or bridge.")
@click.option("--release", metavar="RELEASE", help="Megatron-Bridge release of logs without a record.")
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
    settings: tuple[str, ...],
    framework: str | None,
    release: str | None,
    full_names: bool,
    fmt: str,
) -> int:
    """Read logs and show what they measured.

    PATH is a log, a folder with log-*.out files at any depth (default: ./experiments), or - for standard input. Logs
    may be compressed with gzip. Options override what a log or its name contains; llmb prints what they override. With
    -w, the plugin of that workload reads the logs.
    """
    given = describe(context, gpu_type=gpu_type, workload=workload, dtype=dtype, scale=scale, gbs=gbs)
    _check("--framework", framework, list(bridge.FRAMEWORKS))
    if release is not None and framework not in (None, bridge.BRIDGE):
        message, hint = "--release is of Megatron-Bridge's image", "omit it, or --framework bridge"
        raise UsageError(message, hint=hint, code="release-without-bridge", key="--release", value=release)
    given = replace(given, framework=bridge.BRIDGE if release is not None else framework, release=release)
    given = with_settings(context, given, settings)
    logs = paths or (Path("experiments"),)
    return print_logs(context, logs, given, window, reference, fmt, full_names=full_names)


def describe(
    context: Context,
    *,
    gpu_type: str | None,
    workload: str | None,
    dtype: str | None,
    scale: int | None,
    gbs: int | None,
) -> Description:
    """What the options say of logs without a record. Raises UsageError with the nearest word."""
    key, size = (None, None) if workload is None else select.split_name(workload, context.workloads)
    _check("--gpu-type", gpu_type, list(context.plugins.gpu_types))
    if key is not None and size is None:
        own = context.workloads[key]
        if own.is_training or len(own.sizes) > 1:  # its key says too little
            sizes = ", ".join(f"-w {key}_{name}" for name in own.sizes)
            message = f"--workload {workload} has no size"
            raise UsageError(message, hint=f"one of {sizes}", code="size-missing", key="--workload", value=workload)
    rows = (row for one in context.workloads.values() for size in one.sizes.values() for row in size.rows)
    known = {each for kind in context.plugins.gpu_types.values() for each in kind.peak_tflops}
    known |= {*describe_log.ALL_DTYPES, *(each for row in rows for each in row.dtype)}
    _check("--dtype", dtype, sorted(known))
    return Description(workload=key, size=size, dtype=dtype, gpu_type=gpu_type, gpus=scale, gbs=gbs)


def _check(option: str, value: str | None, known: list[str]) -> None:
    if value is not None and value not in known:
        hint, code = suggest(value, known), "option-unknown-value"
        raise UsageError(f"{option} {value} is unknown", hint=hint, code=code, key=option, value=value)


def print_logs(
    context: Context,
    paths: Sequence[Path],
    given: Description,
    window: str | None,
    reference: str | None,
    fmt: str,
    *,
    full_names: bool,
) -> int:
    """Print the results of the logs at ``paths``; the exit code.

    ``given``: what the user says of logs without a record, which never name their GPU type.
    """
    chosen = parse_window(window) if window is not None else None
    unreadable = list[OSError]()
    with tempfile.TemporaryDirectory() as folder:
        logs = _logs(paths, folder, unreadable.append)
        results = _results(context, list(logs), chosen, given)
    results = [_with_path(result, logs) for result in results]
    # Print what the options override, each difference once.
    found = Counter(one for result in results for one in result.identity.overridden)
    for one, count in found.items():
        which = "1 log" if count == 1 else f"{count} logs"
        option = _OPTION_OF.get(one.setting, "--set")
        say(f"note: {option} sets {one.setting} {one.given} for {which}, overriding {one.logged}")
    code = print_report(judged(context, results, reference), fmt, full_names=full_names)
    for error in unreadable:
        say(f"warning: cannot read {error.filename}, so its logs are skipped: {error.strerror}")
    return code or (LlmbError.exit_code if unreadable else 0)


def _logs(paths: Sequence[Path], folder: str, unreadable: Callable[[OSError], None]) -> dict[Path, Path]:
    """The logs at ``paths``, each with the path to show for it.

    What comes through a pipe is copied to ``folder``, since a log is read twice.
    """
    found: dict[Path, Path] = {}
    for number, path in enumerate(paths):
        if path != _STDIN and not path.is_fifo():
            found |= {log: log for log in find.logs_at(path, unreadable)}
            continue
        copy = Path(folder) / ("log-stdin.out" if path == _STDIN else f"log-pipe{number}.out")
        with copy.open("wb") as file, nullcontext(sys.stdin.buffer) if path == _STDIN else path.open("rb") as pipe:
            shutil.copyfileobj(pipe, file)
        found[copy] = path
    return found


def _with_path(result: Result, shown: Mapping[Path, Path]) -> Result:
    """The result with the path to show for its log; that of a run's log remains."""
    path = Path(result.identity.path)
    return replace(result, identity=replace(result.identity, path=str(shown.get(path, path))))


def _results(context: Context, logs: Sequence[Path], window: Window | None, given: Description) -> list[Result]:
    """The results of logs: with the run's record for the log of its last attempt, else from the log alone."""
    recorded = {log: run for log in logs if (run := _run_of(log)) is not None}
    foreign = [log for log in logs if log not in recorded]
    workloads = context.workloads
    log = foreign[0] if foreign else Path("log")
    readers = readers_of_logs(workloads, given.workload, log, context.plugins) if foreign else {}
    read = partial(
        log_result.result_of_log,
        reader=LogReader(),
        window=window,
        workloads=workloads,
        readers=readers,
        given=given,
        flops=partial(reading.own_flops, context),
        types=context.plugins.gpu_types,
    )
    results = dict(zip(foreign, map_many(read, foreign), strict=True))
    return [results[log] if log in results else _recorded(context, log, recorded[log], window) for log in logs]


def _run_of(log: Path) -> record.RunRecord | None:
    """The recorded run whose last attempt wrote ``log``; None with a warning where the record is damaged."""
    directory = find.run_directory(log)
    try:
        run = record.load(directory) if directory is not None else None
    except LlmbError as error:
        say(f"warning: {error.message}; reading its log without the record")
        return None
    return run if run is not None and find.log_of(run).resolve() == log.resolve() else None


def _recorded(context: Context, log: Path, run: record.RunRecord, window: Window | None) -> Result:
    """The result of a recorded run by its last known state, or by a complete log; asks no cluster."""
    seen = store.seen_state(run) or JobState(state=UNKNOWN, reason="its cluster has not been asked since")
    if not seen.is_end and log_result.result_of_log(log, reading.reader_for(context, run), window).status == SUCCESS:
        seen = JobState(state=COMPLETED)
    known = context.plugins.gpu_types.get(run.job.gpu_type)
    peak = known.peak_tflops.get(gpus.peak_dtype(run.job.dtype)) if known else None
    return reading.result_of(context, run, seen, peak, window)
