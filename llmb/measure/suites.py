# SPDX-License-Identifier: Apache-2.0
"""The folders of CloudAI, superbench and ReFrame: which files are logs, and what a run is called.

CloudAI (2026-08): ``<scenario>_<time>/<test>/<iteration>[/<step>]/stdout.txt`` with stderr.txt,
beside cloudai_sbatch_script.sh or test-run.toml. superbench 0.12: ``<time>/nodes/<node>/benchmarks/
<benchmark>/rank<N>/results.json`` with sb-bench.log in the node's folder, and
``<time>/results-summary.jsonl``. ReFrame 4:
``(output|stage)/<system>/<partition>/<environment>/<test>/rfm_job.out`` with rfm_job.err.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

CLOUDAI_LOG, CLOUDAI_ERRORS = "stdout.txt", "stderr.txt"
CLOUDAI_SCRIPT = "cloudai_sbatch_script.sh"
CLOUDAI_MARKS = frozenset({CLOUDAI_SCRIPT, "test-run.toml"})
REFRAME_LOG, REFRAME_ERRORS = "rfm_job.out", "rfm_job.err"
SUPERBENCH_RESULTS, SUPERBENCH_SUMMARY = "results.json", "results-summary.jsonl"
SUPERBENCH_LOGS = ("sb-bench.log", "sb-exec.log")
_RANK = re.compile(r"rank(\d{1,6})")
_RANKS_OF = "benchmarks"
_STAGE, _OUTPUT = "stage", "output"
_REFRAME_DEPTH = 4  # folders from the system to the test


def is_log(folder: str, name: str, names: Collection[str]) -> bool:
    """Return True if ``name`` in ``folder``, which has the files ``names``, is a log of a suite."""
    plain = name.removesuffix(".gz")
    if plain == CLOUDAI_LOG:
        return not CLOUDAI_MARKS.isdisjoint(names) or _is_in_one_job(Path(folder))
    if plain == REFRAME_LOG:
        return True
    if name == SUPERBENCH_RESULTS:
        return rank_of(Path(folder)) is not None
    return name in (SUPERBENCH_SUMMARY, SUPERBENCH_LOGS[0])


def _is_in_one_job(folder: Path) -> bool:
    """Return True if ``folder`` is of a test of CloudAI that shares a job with others.

    Their script is in the scenario's folder.
    """
    if not folder.name.isdecimal():
        return False
    return any((parent / CLOUDAI_SCRIPT).is_file() for parent in list(folder.parents)[1:3])


def rank_of(folder: Path) -> int | None:
    """Return N of superbench's folder ``benchmarks/<benchmark>/rank<N>``, None for any other."""
    match = _RANK.fullmatch(folder.name)
    is_of_benchmark = _RANKS_OF in (parent.name for parent in list(folder.parents)[1:4])
    return int(match[1]) if match and is_of_benchmark else None


def ranks_beside(results: Path) -> list[Path]:
    """Return the results of all ranks of the benchmark that ``results`` is of, in their order."""
    if rank_of(results.parent) is None:
        return [results]
    try:
        folders = [
            folder for folder in results.parent.parent.iterdir() if rank_of(folder) is not None
        ]
    except OSError:
        return [results]
    paths = (
        folder / results.name for folder in sorted(folders, key=lambda path: rank_of(path) or 0)
    )
    return [path for path in paths if path == results or path.is_file()]


def without_copies(logs: Iterable[Path]) -> list[Path]:
    """Return ``logs`` without those whose figures another one has.

    superbench's ranks have one result together, its summary repeats the results, and its log tells
    why there are none. ReFrame copies a run's log from ``stage`` to ``output``.
    """
    logs = list(logs)
    first_ranks: dict[Path, tuple[int, Path]] = {}
    for log in logs:
        rank = rank_of(log.parent) if log.name == SUPERBENCH_RESULTS else None
        if rank is not None:
            benchmark = log.parent.parent
            first_ranks[benchmark] = min((rank, log), first_ranks.get(benchmark, (rank, log)))
    results = {log for _, log in first_ranks.values()}
    measured = {parent for log in results for parent in log.parents}
    all_logs = set(logs)
    return [log for log in logs if _is_original(log, results, measured, all_logs)]


def _is_original(
    log: Path, results: Collection[Path], measured: Collection[Path], logs: Collection[Path]
) -> bool:
    if log.name == SUPERBENCH_RESULTS and rank_of(log.parent) is not None:
        return log in results
    if log.name in (SUPERBENCH_SUMMARY, *SUPERBENCH_LOGS):
        return log.parent not in measured
    if log.name.removesuffix(".gz") == REFRAME_LOG:
        return not any(copy in logs for copy in _copies(log))
    return True


def _copies(log: Path) -> Iterator[Path]:
    """Yield where ReFrame copies a log in ``stage`` to."""
    parts = log.parts
    for at in [index for index, part in enumerate(parts) if part == _STAGE]:
        yield Path(*parts[:at], _OUTPUT, *parts[at + 1 :])


def name_of(log: Path) -> str | None:
    """Return what its suite calls the run of ``log``, None for a log of no suite.

    ``<scenario>/<test>/<iteration>``, ``<node>/<benchmark>`` and, as ReFrame writes it,
    ``<test>@<system>:<partition>+<environment>``.
    """
    name, folder = log.name.removesuffix(".gz"), log.absolute().parent
    if name == CLOUDAI_LOG and _is_of_cloudai(folder):
        return "/".join(reversed(list(_of_cloudai(folder))))
    if name == REFRAME_LOG and len(folder.parts) > _REFRAME_DEPTH:
        test, environment, partition, system = folder.parts[: -_REFRAME_DEPTH - 1 : -1]
        return f"{test}@{system}:{partition}+{environment}"
    if name == SUPERBENCH_RESULTS and rank_of(folder) is not None:
        node, names = folder.parent, list[str]()
        while node.name != _RANKS_OF:
            names.insert(0, node.name)
            node = node.parent
        return "/".join((node.parent.name, *names))
    if name in (SUPERBENCH_SUMMARY, *SUPERBENCH_LOGS):
        return folder.name
    return None


def _is_of_cloudai(folder: Path) -> bool:
    return any((folder / mark).is_file() for mark in CLOUDAI_MARKS) or _is_in_one_job(folder)


def _of_cloudai(folder: Path) -> Iterator[str]:
    """Yield the folders' names from the innermost one: iteration and step, test, scenario."""
    while folder.name.isdecimal():
        yield folder.name
        folder = folder.parent
    yield folder.name
    if folder.parent.name:
        yield folder.parent.name


def stderr_beside(log: Path) -> Path | None:
    """Return the file with the standard error of the run whose output is ``log``, if it exists."""
    name = log.name.removesuffix(".gz")
    if name == REFRAME_LOG:
        errors = REFRAME_ERRORS
    elif name == CLOUDAI_LOG and _is_of_cloudai(log.absolute().parent):
        errors = CLOUDAI_ERRORS
    else:
        return None
    paths = (log.with_name(errors), log.with_name(f"{errors}.gz"))
    return next((path for path in paths if path.is_file()), None)


def errors_beside(log: Path) -> list[Path]:
    """Return the files that may say why the run of ``log`` failed, the existing ones."""
    stderr = stderr_beside(log)
    if stderr is not None:
        return [stderr]
    if log.name != SUPERBENCH_RESULTS or rank_of(log.absolute().parent) is None:
        return []
    node = next(parent for parent in log.absolute().parents if parent.name == _RANKS_OF).parent
    return [path for name in SUPERBENCH_LOGS if (path := node / name).is_file()]
