# SPDX-License-Identifier: Apache-2.0
"""llmb-install uninstall: removes all that llmb-install built, and says what stays."""

import os
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

from llmb.core import console, locks
from llmb.errors import LlmbError
from llmb.kit import programs
from llmb.plan.locate import CONFIG_FILE
from llmb.run import store
from llmb_installer import record
from llmb_installer.applying.install import confirm
from llmb_installer.commands.remove import delete_steps, remove
from llmb_installer.planning.plan import load_offered, read_recorded_answers, resolve_intent


def run(install: Path | None, yes: bool, dry_run: bool) -> None:
    folder = record.find_folder(install)
    has_config = (folder / CONFIG_FILE).is_file()
    if not has_config and record.is_interrupted(folder):  # before the first workload was installed
        runs, installed = [], tuple[str, ...]()
    else:
        config = record.load_layered_config(folder)
        runs, installed = store.all_runs(config)[0], config.workloads.installed or ()
    states = [store.seen_state(run) for run in runs]
    if open_runs := sum(state is None or not state.is_end for state in states):
        option = record.format_option(folder)
        raise LlmbError(
            f"{open_runs} of {len(runs)} runs have not ended, as far as is known, and need what"
            " would be removed",
            hint=f"llmb-run jobs wait{option}, or llmb-run jobs cancel --all{option}",
            code="runs-open",
        )
    install_record = record.load(folder)
    built = [key for step in install_record.steps.values() for key in step.workloads]
    workloads = tuple(dict.fromkeys([*installed, *built]))
    _show(folder, install_record, len(runs), has_config=has_config)
    if dry_run:
        return
    if not yes:
        confirm()
    if workloads and has_config:
        offered = load_offered(folder)
        answers = replace(read_recorded_answers(folder, offered), workloads=())
        remaining, _ = resolve_intent(answers, offered, before=install_record.config)
        remove(remaining, answers, workloads)
    with locks.hold(folder / record.FOLDER, record.LOCK):
        rest = record.load(folder)
        delete_steps([*rest.steps], rest, folder)
        record.end_leftover_programs(folder)
        record.remove_all_parts(folder)
        record.mark_finished(folder, os.environ)
        # `remove` keeps them for queued runs, and now there are none.
        shutil.rmtree(programs.path(folder, "any").parent, ignore_errors=True)
    console.echo(f"Removed: {', '.join(install_record.steps) or 'nothing was built'}")


def _show(
    folder: Path, install_record: record.InstallRecord, runs: int, *, has_config: bool
) -> None:
    console.echo(f"To remove from {folder}:")
    for key in install_record.steps:
        console.echo(f"  {key}")
    console.echo("What stays:")
    named = f"{runs} run{'s' * (runs != 1)}"
    console.echo(f"  the records, logs and results of {named}, in {folder}/workloads")
    own = f"{CONFIG_FILE}, and the" if has_config else "the"
    console.echo(f"  {own} answers and logs in .llmb")
    console.echo("  secrets in ~/.config/llmb/secrets, and the caches of uv and pip")
    console.echo("  llmb itself: pip uninstall llmb llmb-installer")
    console.echo(f"To delete the runs too: rm -r {shlex.quote(str(folder))}")
