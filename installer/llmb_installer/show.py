# SPDX-License-Identifier: Apache-2.0
"""What the user reads: the plan before, one line for each step, and what is there after."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import click

from llmb.config import CONFIG_FILE
from llmb_installer.plan import Plan
from llmb_installer.record import InstallRecord
from llmb_installer.steps import VenvStep, is_there

SHOWN = ("torch", "transformers")  # packages whose version a summary tells


def plan_text(plan: Plan) -> str:
    """The plan: each step with what it fetches, the configuration, the space there is."""
    lines = [f"Install directory {plan.install} (cluster type local, GPU type {plan.intent.site.gpu_type})"]
    lines += [f"  {step.key:<12}  done already" for step in plan.done]
    lines += [f"  {step.key:<12}  {_what(step)}" for step in plan.todo]
    change = "unchanged" if not plan.config.changed else "written"
    lines.append(f"  {'config':<12}  {CONFIG_FILE}: {change}; {_workloads(plan.intent.workloads)}")
    lines += [f"  note: {sentence}" for sentence in plan.config.kept]
    if plan.todo:
        lines.append(f"Size of the downloads: known to pip only. Free there: {_free(plan.install)}.")
    return "\n".join(lines)


def _what(step: VenvStep) -> str:
    source = ""
    if step.torch.index is not None:
        source = f"; torch from {step.torch.index}"
    elif step.torch.cpu_index is not None:
        source = "; torch for CPUs"
    return f"Python environment with {', '.join(step.need.requirements)}{source}, for {_workloads(step.workloads)}"


def _workloads(keys: tuple[str, ...]) -> str:
    return f"{len(keys)} workload{'s' * (len(keys) != 1)}: {', '.join(keys)}"


def _free(folder: Path) -> str:
    """The free space where ``folder`` is or will be."""
    there = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    return f"{shutil.disk_usage(there).free / 1e9:.0f} GB"


@contextlib.contextmanager
def step_line(step: VenvStep) -> Iterator[None]:
    """One line on stderr for a step: while it runs, with the seconds that pass where there is a terminal, and after."""
    start, shown = time.monotonic(), f"{step.key}: {', '.join(step.need.requirements)}"
    ended = "failed"
    try:
        with _running(shown):
            yield
        ended = "done"
    finally:
        click.echo(f"{shown}: {ended} after {time.monotonic() - start:.0f} s", err=True)


@contextlib.contextmanager
def _running(text: str) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        bar.add_task(text)
        yield


def summary(plan: Plan, record: InstallRecord) -> str:
    """What is there now, and the command to type next."""
    lines = [f"Installed in {plan.install}: {_workloads(plan.intent.workloads)}"]
    lines += [f"  {line}" for line in steps_text(plan.install, record)]
    lines.append(f"Next: llmb-run submit-all --min-scale --install {shlex.quote(str(plan.install))} --wait")
    return "\n".join(lines)


def steps_text(install: Path, record: InstallRecord) -> list[str]:
    """A line for each finished step: what it made, and whether that is still there."""
    lines = []
    for key, done in record.steps.items():
        packages = done.facts.get("packages", {})
        names = [f"{name} {packages[name]}" for name in SHOWN if name in packages]
        path = install / "venvs" / key.removeprefix("venv ")
        state = "" if is_there(path, done.facts.get("folder")) else " (no longer there)"
        lines.append(f"{key}: Python {done.facts.get('python')}, {', '.join(names)}, {len(packages)} packages{state}")
    return lines
