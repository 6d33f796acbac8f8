# SPDX-License-Identifier: Apache-2.0
"""Gathers the answers from their layers: the file, the command line, and questions in a terminal."""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from llmb.config import CONFIG_FILE
from llmb.config.exemplar import CODE as EXEMPLAR
from llmb.config.slurm import SlurmConfig
from llmb.errors import Fault, InputFaults, LlmbError, UsageError, describe
from llmb.system import console
from llmb.text import yamlfile
from llmb.text.fold import fold
from llmb.text.tables import output_width
from llmb_installer import fits, record
from llmb_installer.answers.layers import NOTHING, given, missing, value_at, with_layer, with_settings
from llmb_installer.answers.read import read_answers, require_valid
from llmb_installer.applying import show
from llmb_installer.applying.apply import context_for
from llmb_installer.cluster_types import type_in
from llmb_installer.detect import detected as detection, scheduler, slurm_checks
from llmb_installer.planning.costs import find_costs
from llmb_installer.planning.plan import Intent, Offered, Plan, intent_of, load_offered, look, with_changed_types


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What to install, and notes for the user; ``agreed``: the user has seen the plan and confirmed it."""

    intent: Intent
    notes: tuple[str, ...]
    agreed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What the user chose to do with the installation in ``install``; carried out by the command of that name."""

    action: Literal["remove", "repair"]
    install: Path
    workloads: tuple[str, ...] = ()


def layers(
    file: Path | None, install: Path | None = None, settings: Sequence[str] = (), *, recorded: bool = False
) -> yamlfile.Document:
    """The answers of ``file``, overridden by ``settings`` (``slurm.account=team``), then by ``--install``.

    ``recorded``: the file is the installer's own in ``install``. Raises UsageError for an invalid setting.
    """
    document = yamlfile.load(file, strict=False) if file is not None else NOTHING
    if isinstance(document.data, dict):  # duplicate keys are among its faults
        unique = {key: value for key, value in document.data.items() if not isinstance(key, yamlfile.DuplicateKey)}
        document = replace(document, data=unique)
    if recorded and install is not None:
        document = with_changed_types(document, install)
    document = with_settings(document, settings)
    return with_layer(document, {"install": str(install)} if install is not None else {}, "--install")


def gather(
    answers_file: Path | None, install: Path | None, settings: Sequence[str], *, terminal: bool, dry_run: bool
) -> Gathered | Change:
    """What the answers ask to install here; in a ``terminal`` the user is asked for missing ones.

    Writes nothing but typed secrets. Raises InputFaults with every missing key, LlmbError.
    """
    offered, recorded = load_offered(), False
    if answers_file is None and not terminal and (folder := _installed_folder(install, settings)) is not None:
        what = (
            "continuing the unfinished installation in"
            if record.is_unfinished(folder)
            else "using the recorded answers of"
        )
        console.echo(f"note: {what} {folder}; --config uses other answers", err=True)
        answers_file, install, recorded = record.answers_path(folder), folder, True
    elif answers_file is None and not terminal and not settings:
        _check_configured(install)
    document = layers(answers_file, install, settings, recorded=recorded)
    if not terminal and not recorded:
        document, used = detection.with_variables(document, os.environ)
        _print_notes([f"from the environment: {', '.join(used)}"] if used else [])
    if answers_file is None and terminal and (folder := _unfinished_folder(install, settings)) is not None:
        resumed = _resume(folder, settings, offered)
        if isinstance(resumed, Gathered):
            return resumed
        document = resumed if resumed is not None else document
    elif not terminal or not missing(document.data):
        document, detected = (document, []) if recorded else slurm_checks.with_container(document)
        intent, notes = _intent(document, offered, recorded=recorded)
        return Gathered(intent=intent, notes=(*detected, *notes))
    return _ask(document, offered, install, dry_run=dry_run)


def _ask(document: yamlfile.Document, offered: Offered, install: Path | None, *, dry_run: bool) -> Gathered | Change:
    """Ask for what ``document`` lacks, with what is detected here as defaults. Raises InputFaults, LlmbError."""
    try:
        require_valid(document, offered.workloads)
    except InputFaults as error:
        raise _with_cluster_faults(error, document) from error
    from llmb_installer.wizard.conversation import ask

    console.echo("Detecting this machine and its cluster ...", err=True)
    detected = detection.detect(os.environ, console.current_folder(), install)
    if detected.damaged is not None and not given(document.data, "cluster_type"):
        raise detected.damaged.error
    if detected.slurm is not None:
        faults, notes = _check_given(document, detected.slurm)
        _print_notes(notes)
        if faults:
            raise InputFaults(faults)
    asked = ask(
        document,
        detected,
        offered.plugins,
        lambda answered: _show_plan(*_intent(answered, offered)),
        os.environ,
        dry_run=dry_run,
    )
    if asked.action != "install":
        return Change(action=asked.action, install=Path(asked.document.data["install"]), workloads=asked.workloads)
    intent, notes = _intent(asked.document, offered)
    return Gathered(intent=replace(intent, adopts=True), notes=tuple(notes), agreed=True)


def _unfinished_folder(install: Path | None, settings: Sequence[str]) -> Path | None:
    """The unfinished installation in this folder or the named one, else the one that this user began last.

    Raises LlmbError while another llmb-install works in this folder.
    """
    if any(setting.partition("=")[0].strip() in ("cluster_type", "install") for setting in settings):
        return None
    folder = _installed_folder(install, settings)
    if folder is not None and record.is_unfinished(folder):
        if (running := record.running_installer(folder)) is not None:
            hint = "wait until it has finished"
            raise LlmbError(f"{folder}: {running}", hint=hint, code="install-running", value=str(folder))
        return folder
    is_named = install is not None or os.environ.get("LLMB_INSTALL")
    folder = record.last_unfinished(os.environ) if folder is None and not is_named else None
    return folder if folder is not None and record.running_installer(folder) is None else None


def _resume(folder: Path, settings: Sequence[str], offered: Offered) -> Gathered | yamlfile.Document | None:
    """Show what is done and what remains of an unfinished installation, and ask whether to continue it.

    What to install; the answers, which the user wants to change first; None for something else.
    """
    from llmb_installer.wizard.conversation import ask_resume

    document = layers(record.answers_path(folder), folder, settings, recorded=True)
    count, refused = "its plan is invalid", ""
    found: tuple[Intent, list[str]] | None = None
    try:
        found = _intent(document, offered, recorded=True)
        count = _show_plan(*found).progress
    except LlmbError as error:
        console.echo(describe(error), err=True)
        refused = "see above"
    choice = ask_resume(folder, count, refused=refused, has_config=(folder / CONFIG_FILE).exists())
    if choice == "continue" and found is not None:
        return Gathered(intent=replace(found[0], adopts=True), notes=(), agreed=True)
    return document if choice == "change" else None


def _intent(document: yamlfile.Document, offered: Offered, *, recorded: bool = False) -> tuple[Intent, list[str]]:
    """What the answers ask for, compared with the cluster here. Raises InputFaults at file and line, LlmbError."""
    try:
        asked = read_answers(document, known=offered.workloads, recorded=recorded)
        offered.check_settings(document, asked)
        intent, notes = intent_of(asked, offered)
        return intent, [*notes, *fits.check(intent.answers)]
    except InputFaults as error:
        raise _with_cluster_faults(error, document) from error


def _with_cluster_faults(error: InputFaults, document: yamlfile.Document) -> InputFaults:
    """The faults at file and line, with those from comparing the readable answers with the cluster here."""
    faults, notes = _check_given(document)
    _print_notes(notes)
    placed = [_placed(fault, document) for fault in error.faults]
    return InputFaults([*placed, *(fault for fault in faults if fault not in placed)], hint=error.hint)


def _check_given(
    document: yamlfile.Document, found: scheduler.SlurmFound | None = None
) -> tuple[list[Fault], list[str]]:
    kind = type_in(document.data)
    if value_at(document.data, "cluster_type") is not None and not (kind is not None and kind.has(SlurmConfig)):
        return [], []
    faults, notes = slurm_checks.check_given(document.data, found)
    return [_placed(fault, document) for fault in faults], notes


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        console.echo(f"note: {note}", err=True)


def _placed(fault: Fault, document: yamlfile.Document) -> Fault:
    """A fault at a key, placed at the layer that has the key: ``file:line`` for the file."""
    if not given(document.data, fault.place):
        return fault
    place = document.place(tuple(fault.place.split(".")))
    return replace(fault, place=place if place.endswith(fault.place) else f"{place}: {fault.place}")


def _installed_folder(install: Path | None, settings: Sequence[str]) -> Path | None:
    """The installation whose recorded answers are used where no answers file is named; None without one."""
    if any(setting.partition("=")[0].strip() in ("cluster_type", "install") for setting in settings):
        return None
    try:
        folder = record.find_folder(install)
    except UsageError as error:
        if error.code == EXEMPLAR:
            raise
        return None  # there is none: the missing keys are reported
    return folder if record.answers_path(folder).is_file() else None


def _check_configured(install: Path | None) -> None:
    """Raise UsageError for a configuration here that cannot be read, rather than for missing answers."""
    try:
        folder = record.find_folder(install)
    except UsageError:
        return
    if (folder / CONFIG_FILE).is_file():
        record.own_config(folder)


def _show_plan(intent: Intent, notes: Sequence[str]) -> Plan:
    """Print the plan of ``intent``, which is returned. Raises LlmbError where it cannot be carried out."""
    plan = look(replace(intent, adopts=True))
    for note in notes:
        console.echo(fold(f"note: {note}", output_width(), "  "))
    costs = find_costs(plan.todo, plan.install, context_for(intent, threading.Event()))
    console.echo(show.plan_text(plan, costs))
    costs.require()
    return plan
