# SPDX-License-Identifier: Apache-2.0
"""Runs parts one after another, each as a process with a time limit, and packs what they keep.

The folder of the results has one file `results.json` and `NAME.tar.gz` for each part that keeps
files: no more than 8 files, none above MOST_BYTES.
"""

import contextlib
import ctypes
import json
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from gpu.context import KEPT, RESULTS, Context

MOST_SECONDS = 540
MOST_BYTES = 16 << 20
MOST_PARTS = 7  # and results.json: 8 files
DONE, FAILED, TIMED_OUT, NOT_RUN = "done", "failed", "timed out", "not run"
#: The exit code of a part that this machine cannot run. Its last line has the reason.
CANNOT_RUN = 77
_ENDING = 10.0  # seconds from SIGTERM to SIGKILL
_BECOME_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part: `run(context, *words)` of a module."""

    name: str
    module: str
    #: Seconds, on a GPU.
    limit: int
    words: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a part has shown."""

    state: str
    seconds: float
    #: Of a part that is not done: the last lines of its output.
    reason: str | None = None
    figures: dict[str, Any] = field(default_factory=dict)
    #: The summary, one line for each finding.
    lines: list[str] = field(default_factory=list)
    #: Files that were too large to keep, with their bytes.
    omitted: dict[str, int] = field(default_factory=dict)


def run_parts(parts: Sequence[Part], out: Path, context: Context) -> dict[str, Outcome]:
    """Run ``parts``, and write results.json after each. A part that fails stops no other."""
    out.mkdir(parents=True, exist_ok=True)
    _adopt_orphans()
    outcomes: dict[str, Outcome] = {}
    for part in parts:
        print(f"== {part.name} ({part.limit} s at most)", flush=True)
        outcomes[part.name] = outcome = _run(part, out, context)
        print(f"-- {part.name}: {outcome.state} after {outcome.seconds:.0f} s", flush=True)
        write_results(out, context, outcomes)
    return outcomes


def write_results(out: Path, context: Context, outcomes: dict[str, Outcome]) -> None:
    """Replace results.json."""
    data = {"machine": context.machine, "parts": {key: asdict(o) for key, o in outcomes.items()}}
    partial = out / "results.json.part"
    partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    partial.replace(out / "results.json")


def _run(part: Part, out: Path, context: Context) -> Outcome:
    own = context.of_part(part.name)
    (own.folder / KEPT).mkdir(parents=True, exist_ok=True)
    output = own.folder / KEPT / "output.txt"
    started = time.monotonic()
    code = _wait(part, own, output)
    data = _read_results(own.folder / RESULTS)
    state = {0: DONE, None: TIMED_OUT, CANNOT_RUN: NOT_RUN}.get(code, FAILED)
    outcome = Outcome(
        state=state,
        seconds=round(time.monotonic() - started, 1),
        figures=data.get("figures", {}),
        lines=data.get("lines", []),
    )
    if code is None:
        outcome.reason = f"stopped at its limit of {part.limit} s"
    elif code != 0:
        text = output.read_text("utf-8", "replace").strip().splitlines()
        outcome.reason = "\n".join(text[-1:] if code == CANNOT_RUN else text[-8:])
    outcome.omitted = pack(own.folder / KEPT, out / f"{part.name}.tar.gz", MOST_BYTES)
    return outcome


def _wait(part: Part, own: Context, output: Path) -> int | None:
    """Run the part's process and return its exit code, or None if it ran into its limit."""
    argv = [sys.executable, "-m", "gpu.child", part.module, own.to_text(), *part.words]
    with output.open("wb") as stream:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(part.limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end_descendants()


def _adopt_orphans() -> None:
    """Make this process the parent of what a part leaves behind, so that it can be ended."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1, 0, 0, 0)


def _end_descendants() -> None:
    """End every process that a part has started. The local queue runs in a session of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        processes = psutil.Process().children(recursive=True)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        psutil.wait_procs(processes, timeout=_ENDING)


def _read_results(path: Path) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):  # the part had none yet
        return {}
    return data


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    )


def pack(folder: Path, target: Path, limit: int) -> dict[str, int]:
    """Write the files below ``folder`` as ``target``, a tar file of at most ``limit`` bytes.

    Returns the files that are too large for it, the largest first, with their bytes.
    """
    omitted: dict[str, int] = {}
    files = list(_files(folder))
    while True:
        with tarfile.open(target, "w:gz") as tar:
            for path in files:
                tar.add(path, arcname=str(path.relative_to(folder)))
        if target.stat().st_size <= limit or not files:
            return omitted
        largest = max(files, key=lambda path: path.stat().st_size)
        files.remove(largest)
        omitted[str(largest.relative_to(folder))] = largest.stat().st_size


def summary(context: Context, outcomes: dict[str, Outcome]) -> list[str]:
    """Return the last lines of the output: the machine, and each part with its findings."""
    lines = ["", f"Summary, {context.title}"]
    for name, outcome in outcomes.items():
        lines.append(f"{name}: {outcome.state}, {outcome.seconds:.0f} s")
        lines += [f"  {line}" for line in outcome.lines]
        lines += [f"  {line}" for line in (outcome.reason or "").splitlines()]
        for path, size in outcome.omitted.items():
            lines.append(f"  not kept: {path}, too large ({size:,} bytes)")
    return lines
