# SPDX-License-Identifier: Apache-2.0
"""Reads logs and prints what they measured, also of runs that llmb did not submit."""

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from llmb.check.log_trial import readers_of_logs
from llmb.cli import reading
from llmb.cli.context import CliContext, say
from llmb.cli.judging import judged
from llmb.cli.results import print_report
from llmb.cli.submit.overrides import parse_set
from llmb.contract import gpus, record, switches
from llmb.contract.samples import Samples
from llmb.contract.settings import Settings
from llmb.contract.state import COMPLETED, UNKNOWN, JobState
from llmb.contract.window import Window, parse_window
from llmb.core.names import suggest
from llmb.core.shell import map_many
from llmb.errors import Fault, InputFaults, LlmbError, UsageError
from llmb.measure import describe_log, find_logs, log_result
from llmb.measure.reader import LogReader
from llmb.measure.result import SUCCESS, Result
from llmb.plan import entry_faults, select
from llmb.run import store

_OF_LOGS = ("max_steps",)  # what a log itself says
_SEQ_LENGTH = "seq_length"  # a run has its model's; a log may be of another


def with_settings(context: CliContext, description: Settings, text: Sequence[str]) -> Settings:
    """Add the pairs ``text`` of ``--set``. Raises InputFaults with every fault."""
    faults: list[Fault] = []
    workload = context.workloads.get(description.workload)
    size = None if workload is None else description.model_size or workload.default_size
    setting_names = () if workload is None else entry_faults.known_names(workload, size)
    usable = [name for name in (*setting_names, _SEQ_LENGTH) if name not in _OF_LOGS]
    params, words, parameters = parse_set(
        text,
        context.parameters,
        faults,
        usable=None if workload is None else usable,
        numbers=(*switches.PARAMS, _SEQ_LENGTH),
    )
    for name in (*_OF_LOGS, *words):
        if name in params or name in words:
            faults.append(
                Fault(
                    message=f"--set {name}: the log contains it",
                    hint="omit it",
                    code="param-of-log",
                    key=name,
                )
            )
    if description.gbs is not None and params.get("gbs", description.gbs) != description.gbs:
        faults.append(
            Fault(
                message=f"--gbs {description.gbs} and --set gbs={params['gbs']} differ",
                hint="give one of them",
                code="option-conflict",
                key="gbs",
                value=params["gbs"],
            )
        )
    if workload is not None and size is not None:
        named = [*params, *(["gbs"] if description.gbs is not None else [])]
        faults += entry_faults.faults_of_parameters(
            workload, size, {name: (value,) for name, value in parameters.items()}
        )
        training_faults = entry_faults.faults_of_training(
            workload, size, dict.fromkeys(named), switches.NO_SWITCHES, profile=False
        )
        faults += [replace(fault, hint="omit it") for fault in training_faults]
    if faults:
        raise InputFaults(faults)
    values: dict[str, Any] = {**params}
    return replace(description, **values, parameters=parameters)


_STDIN = Path("-")
_OPTION_OF = {
    "model_size": "--workload",
    **{name: f"--{name}" for name in ("workload", "dtype", "scale", "gbs", "framework", "release")},
}


def described(
    context: CliContext,
    *,
    gpu_type: str | None,
    workload: str | None,
    dtype: str | None,
    scale: int | None,
    gbs: int | None,
    settings: Sequence[str],
    framework: str | None,
    release: str | None,
) -> Settings:
    """Describe logs without a record by the options. Raises UsageError with the nearest word."""
    key, size = (None, None) if workload is None else select.split_name(workload, context.workloads)
    _check("--gpu-type", gpu_type, list(context.plugins.gpu_types))
    if key is not None and size is None:
        chosen = context.workloads[key]
        if chosen.is_training or len(chosen.sizes) > 1:  # its key says too little
            sizes = ", ".join(f"-w {key}_{name}" for name in chosen.sizes)
            raise UsageError(
                f"--workload {workload} has no size",
                hint=f"one of {sizes}",
                code="size-missing",
                key="--workload",
                value=workload,
            )
    _check("--dtype", dtype, sorted(_dtypes(context)))
    _check("--framework", framework, context.frameworks)
    if release is not None:
        framework = _framework_with(context, release, framework)
    description = Settings(
        workload=key or "",
        model_size=size or "",
        dtype=dtype or "",
        gpu_type=gpu_type,
        scale=scale or 0,
        gbs=gbs,
        framework=framework or "",
        release=release,
    )
    return with_settings(context, description, settings)


def _framework_with(context: CliContext, release: str, name: str | None) -> str:
    """Return the framework of ``release``, which may be none that llmb knows. Raises UsageError.

    ``name``: the framework that the user gave.
    """
    able = [framework for framework in context.plugins.frameworks.values() if framework.releases]
    if name is not None and all(name != framework.name for framework in able):
        raise UsageError(
            f"--release is of {' or '.join(framework.title for framework in able)}'s image",
            hint=f"omit it, or --framework {' or '.join(framework.name for framework in able)}",
            code="release-without-bridge",
            key="--release",
            value=release,
        )
    having = [framework.name for framework in able if release in framework.releases]
    names = {framework.name for framework in able}
    published = {figure.release for figure in context.figures() if figure.framework in names}
    if not having and release not in published:
        choices = [*dict.fromkeys(choice for framework in able for choice in framework.releases)]
        say(
            f"note: --release {release} is none that llmb knows ({suggest(release, choices)}); its"
            " logs are judged by the figures of another one"
        )
    return name or next(iter([*having, *(framework.name for framework in able)]))


def _dtypes(context: CliContext) -> set[str]:
    """Return every dtype that a log may name."""
    sizes = (size for workload in context.workloads.values() for size in workload.sizes.values())
    gpu_types = context.plugins.gpu_types.values()
    return {
        *describe_log.ALL_DTYPES,
        *(name for size in sizes for row in size.rows for name in row.dtype),
        *(name for gpu_type in gpu_types for name in gpu_type.peak_tflops),
    }


def _check(option: str, value: str | None, allowed: list[str]) -> None:
    if value is not None and value not in allowed:
        raise UsageError(
            f"{option} {value} is unknown",
            hint=suggest(value, allowed),
            code="option-unknown-value",
            key=option,
            value=value,
        )


def print_logs(
    context: CliContext,
    paths: Sequence[Path],
    description: Settings,
    window: str | None,
    reference: str | None,
    fmt: str,
    *,
    full_names: bool,
) -> int:
    """Print the results of the logs at ``paths`` and return the exit code.

    ``description``: what the user says of logs without a record, which never name their GPU type.
    """
    chosen = parse_window(window) if window is not None else None
    unreadable = list[OSError]()
    with tempfile.TemporaryDirectory() as folder:
        logs = _logs(paths, folder, unreadable.append)
        results = _results(context, list(logs), chosen, description)
    results = [_with_path(result, logs) for result in results]
    if len(folders := [path for path in paths if path.is_dir()]) > 1:
        results = [_in_folder(result, folders) for result in results]
    _warn_of_copies(results)
    # Each difference between the options and the logs is printed once.
    overrides = Counter(override for result in results for override in result.identity.overridden)
    for override, count in overrides.items():
        value = f"{override.setting} {override.value}"
        option = _OPTION_OF.get(override.setting, "--set")
        number = "1 log" if count == 1 else f"{count} logs"
        say(f"note: {option} sets {value} for {number}, overriding {override.logged}")
    code = print_report(judged(context, results, reference), fmt, full_names=full_names)
    fixes = {result.cause.kind: result.cause.fix for result in results if result.cause is not None}
    for kind, fix in fixes.items():
        if fix:
            say(f"hint: {kind}: {context.advice(fix)}")
    for error in unreadable:
        say(f"warning: cannot read {error.filename}, so its logs are skipped: {error.strerror}")
    return code or (LlmbError.exit_code if unreadable else 0)


def _logs(
    paths: Sequence[Path], folder: str, unreadable: Callable[[OSError], None]
) -> dict[Path, Path]:
    """The logs at ``paths``, each with the path to show for it.

    What comes through a pipe is copied to ``folder``, since a log is read twice.
    """
    logs: dict[Path, Path] = {}
    for number, path in enumerate(paths):
        if path != _STDIN and not path.is_fifo():
            logs |= {log: log for log in find_logs.logs_at(path, unreadable)}
            continue
        copy = Path(folder) / ("log-stdin.out" if path == _STDIN else f"log-pipe{number}.out")
        with (
            copy.open("wb") as file,
            nullcontext(sys.stdin.buffer) if path == _STDIN else path.open("rb") as pipe,
        ):
            shutil.copyfileobj(pipe, file)
        logs[copy] = path
    return logs


def _warn_of_copies(results: Iterable[Result]) -> None:
    """Warn of measurements that a copy of a log may repeat, such as one in a folder of backups.

    It has the name, the bytes and the night of another log, and is read as a repeat.
    """
    import filecmp

    first_logs: dict[tuple[str | None, str, int], Path] = {}
    for result in results:
        log = Path(result.identity.path)
        if result.identity.run is not None or result.status != SUCCESS or not log.is_file():
            continue
        first_log = first_logs.setdefault(
            (result.identity.session, log.name, log.stat().st_size), log
        )
        if first_log is not log and filecmp.cmp(first_log, log, shallow=False):
            say(f"warning: {log} has the bytes of {first_log}: a copy is no repeat, remove it")


def _with_path(result: Result, shown: Mapping[Path, Path]) -> Result:
    """The result with the path to show for its log. The log of a run keeps its path."""
    path = Path(result.identity.path)
    return result.with_identity(path=str(shown.get(path, path)))


def _in_folder(result: Result, folders: Sequence[Path]) -> Result:
    """The result with the one of ``folders`` that has its log as its session: a night, or a site.

    A recorded run has a session of its own.
    """
    if result.identity.session is not None:
        return result
    log = Path(result.identity.path)
    containing = [path for path in folders if log.is_relative_to(path)]
    folder = max(containing, key=lambda path: len(path.parts), default=None)
    return result.with_identity(session=None if folder is None else str(folder))


def _results(
    context: CliContext, logs: Sequence[Path], window: Window | None, description: Settings
) -> list[Result]:
    """Return the results of logs. The log of a run's last attempt has the result of the run."""
    recorded = {log: run for log in logs if (run := _run_of(log)) is not None}
    foreign = [log for log in logs if log not in recorded]
    workloads = context.workloads
    log = foreign[0] if foreign else Path("log")
    readers = (
        readers_of_logs(workloads, description.workload, log, context.plugins) if foreign else {}
    )
    settings = ((log, context.plugins.log_settings(log)) for log in foreign)
    beside = {log: log_settings for log, log_settings in settings if log_settings is not None}
    read = partial(
        log_result.result_of_log,
        reader=LogReader(failures=context.plugins.failures),
        window=window,
        workloads=workloads,
        readers=readers,
        overrides=description,
        types=context.plugins.gpu_types,
        beside=beside,
        windows=context.plugins.windows,
    )
    formulas = {key for key, workload in workloads.items() if context.plugins.has_flops(workload)}

    def has_formula(log: Path) -> bool:
        return (
            bool(formulas)
            and describe_log.describe_log(
                log, Samples(), workloads, description, beside.get(log)
            ).workload
            in formulas
        )

    # Other processes have no plugins, so a log whose FLOPs follow a plugin's formula is read in
    # this one.
    results = {
        log: read(log, flops=partial(reading.own_flops, context))
        for log in foreign
        if has_formula(log)
    }
    remaining = [log for log in foreign if log not in results]
    # The functions of a plugin's framework, which workloads have, cannot be sent to others.
    has_functions = context.plugins.has_hook("llmb_frameworks")
    read_results = [read(log) for log in remaining] if has_functions else map_many(read, remaining)
    results |= dict(zip(remaining, read_results, strict=True))
    return [
        results[log] if log in results else _recorded(context, log, recorded[log], window)
        for log in logs
    ]


def _run_of(log: Path) -> record.RunRecord | None:
    """The recorded run whose last attempt wrote ``log``.

    None, with a warning, for a damaged record.
    """
    directory = find_logs.run_directory(log)
    try:
        run = record.load(directory) if directory is not None else None
    except LlmbError as error:
        say(f"warning: {error.message}; reading its log without the record")
        return None
    return run if run is not None and find_logs.log_of(run).resolve() == log.resolve() else None


def _recorded(
    context: CliContext, log: Path, run: record.RunRecord, window: Window | None
) -> Result:
    """The result of a recorded run by its last known state, or by a complete log.

    No cluster is asked.
    """
    state = store.seen_state(run) or JobState(
        state=UNKNOWN, reason="its cluster has not been asked since"
    )
    if (
        not state.is_end
        and log_result.result_of_log(log, reading.reader_for(context, run), window).status
        == SUCCESS
    ):
        state = JobState(state=COMPLETED)
    peak = gpus.peak_at(context.plugins.gpu_types.get(run.job.gpu_type), run.job.dtype)
    return reading.result_of(context, run, state, peak, window)
