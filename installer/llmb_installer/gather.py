# SPDX-License-Identifier: Apache-2.0
"""Gathers the answers from the file, the command line, and questions in a terminal."""

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from llmb.contract.sbatch import SlurmConfig
from llmb.core import console, files, yamlfile
from llmb.core.fold import fold
from llmb.core.tables import output_width
from llmb.core.values import dataclass
from llmb.errors import Fault, InputFaults, LlmbError, UsageError, describe
from llmb.plan.locate import CONFIG_FILE
from llmb.plugins.foreign import CODE as FOREIGN
from llmb_installer import fits, record
from llmb_installer.answers.layers import (
    NOTHING,
    find_missing_keys,
    get_value,
    has_key,
    override,
    override_by_settings,
)
from llmb_installer.answers.read import read_answers, require_valid
from llmb_installer.applying import show
from llmb_installer.applying.apply import make_context
from llmb_installer.cluster_types import type_in
from llmb_installer.detect import detected as detection, scheduler, slurm_checks
from llmb_installer.planning.costs import find_costs
from llmb_installer.planning.plan import (
    InstallPlan,
    Intent,
    Offered,
    apply_changed_types,
    load_offered,
    plan_install,
    resolve_intent,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The intent, and notes for the user. ``agreed`` if the user has confirmed the plan."""

    intent: Intent
    notes: tuple[str, ...]
    agreed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationChange:
    """The user's choice for an existing installation: the command ``action`` carries it out."""

    action: Literal["remove", "repair"]
    install: Path
    workloads: tuple[str, ...] = ()


def read_layers(
    file: Path | None,
    install: Path | None = None,
    settings: Sequence[str] = (),
    *,
    recorded: bool = False,
) -> yamlfile.Document:
    """Return the answers of ``file``, overridden by ``settings``, then by ``--install``.

    With ``recorded`` the file is the installer's own in ``install``. Raises UsageError for an
    invalid setting.
    """
    document = yamlfile.load(file, strict=False) if file is not None else NOTHING
    if isinstance(document.data, dict):  # duplicate keys are among its faults
        unique = {
            key: value
            for key, value in document.data.items()
            if not isinstance(key, yamlfile.DuplicateKey)
        }
        document = replace(document, data=unique)
    if recorded and install is not None:
        document = apply_changed_types(document, install)
    document = override_by_settings(document, settings)
    return override(document, {"install": str(install)} if install is not None else {}, "--install")


def gather(
    answers_file: Path | None,
    install: Path | None,
    settings: Sequence[str],
    *,
    terminal: bool,
    dry_run: bool,
) -> Gathered | InstallationChange:
    """Gather what to install here. In a ``terminal`` the user is asked for missing answers.

    Writes nothing but typed secrets. Raises InputFaults with every missing key, LlmbError.
    """
    named = os.environ.get("LLMB_INSTALL")
    offered = load_offered(install or (files.expand(named) if named else None))
    recorded = False
    if (
        answers_file is None
        and not terminal
        and (folder := _installed_folder(install, settings)) is not None
    ):
        action = (
            "continuing the unfinished installation in"
            if record.is_unfinished(folder)
            else "using the recorded answers of"
        )
        console.echo(f"note: {action} {folder}; --config uses other answers", err=True)
        answers_file, install, recorded = record.answers_path(folder), folder, True
    elif answers_file is None and not terminal and not settings:
        _check_configured(install)
    document = read_layers(answers_file, install, settings, recorded=recorded)
    if not terminal and not recorded:
        document, used = detection.add_variables(document, os.environ)
        _print_notes([f"from the environment: {', '.join(used)}"] if used else [])
    if not recorded:
        document, used = slurm_checks.add_cluster(document, os.environ)
        _print_notes(used)
    if (
        answers_file is None
        and terminal
        and (folder := _unfinished_folder(install, settings)) is not None
    ):
        resumed = _resume(folder, settings, offered)
        if isinstance(resumed, Gathered):
            return resumed
        document = resumed if resumed is not None else document
    elif not terminal or not find_missing_keys(document.data):
        document, detected = (document, []) if recorded else slurm_checks.add_container(document)
        intent, notes = _intent(document, offered, recorded=recorded)
        return Gathered(intent=intent, notes=(*detected, *notes))
    return _ask(document, offered, install, dry_run=dry_run)


def _ask(
    document: yamlfile.Document, offered: Offered, install: Path | None, *, dry_run: bool
) -> Gathered | InstallationChange:
    """Ask for what ``document`` lacks, with what is detected here as defaults.

    Raises InputFaults, LlmbError.
    """
    try:
        require_valid(document, offered.workloads)
    except InputFaults as error:
        raise _with_cluster_faults(error, document) from error
    from llmb_installer.wizard.conversation import ask

    console.echo("Detecting this machine and its cluster ...", err=True)
    cluster = slurm_checks.cluster_in(document.data)
    cluster = cluster or slurm_checks.selected_cluster(os.environ)[1]
    detected = detection.detect(os.environ, console.current_folder(), install, cluster)
    if detected.damaged is not None and not has_key(document.data, "cluster_type"):
        raise detected.damaged.error
    if detected.slurm is not None:
        faults, notes = _check_given(document, detected.slurm)
        _print_notes(notes)
        if faults:
            raise InputFaults(faults)
    outcome = ask(
        document,
        detected,
        offered.plugins,
        lambda answered: _show_plan(
            *_intent(slurm_checks.add_cluster(answered, os.environ)[0], offered)
        ),
        os.environ,
        dry_run=dry_run,
    )
    if outcome.action != "install":
        return InstallationChange(
            action=outcome.action,
            install=Path(outcome.document.data["install"]),
            workloads=outcome.workloads,
        )
    document, used = slurm_checks.add_cluster(outcome.document, os.environ)
    intent, notes = _intent(document, offered)
    return Gathered(intent=replace(intent, adopts=True), notes=(*used, *notes), agreed=True)


def _unfinished_folder(install: Path | None, settings: Sequence[str]) -> Path | None:
    """Return the unfinished installation here or the named one, else this user's last one.

    Raises LlmbError while another llmb-install works in this folder.
    """
    if any(
        setting.partition("=")[0].strip() in ("cluster_type", "install") for setting in settings
    ):
        return None
    folder = _installed_folder(install, settings)
    if folder is not None and record.is_unfinished(folder):
        if (running := record.running_installer(folder)) is not None:
            hint = "wait until it has finished"
            raise LlmbError(
                f"{folder}: {running}", hint=hint, code="install-running", value=str(folder)
            )
        return folder
    is_named = install is not None or os.environ.get("LLMB_INSTALL")
    folder = record.last_unfinished(os.environ) if folder is None and not is_named else None
    return folder if folder is not None and record.running_installer(folder) is None else None


def _resume(
    folder: Path, settings: Sequence[str], offered: Offered
) -> Gathered | yamlfile.Document | None:
    """Show the state of an unfinished installation, and ask whether to continue it.

    Return what to install, the answers if the user wants to change them first, or None for
    something else.
    """
    from llmb_installer.wizard.conversation import ask_resume

    document = read_layers(record.answers_path(folder), folder, settings, recorded=True)
    count, refused = "its plan is invalid", ""
    resolved: tuple[Intent, list[str]] | None = None
    try:
        resolved = _intent(document, offered, recorded=True)
        count = _show_plan(*resolved).progress
    except LlmbError as error:
        console.echo(describe(error), err=True)
        refused = "see above"
    choice = ask_resume(folder, count, refused=refused, has_config=(folder / CONFIG_FILE).exists())
    if choice == "continue" and resolved is not None:
        return Gathered(intent=replace(resolved[0], adopts=True), notes=(), agreed=True)
    return document if choice == "change" else None


def _intent(
    document: yamlfile.Document, offered: Offered, *, recorded: bool = False
) -> tuple[Intent, list[str]]:
    """Resolve the answers, and compare them with the cluster here.

    Raises InputFaults at file and line, LlmbError.
    """
    try:
        answers = read_answers(document, workloads=offered.workloads, recorded=recorded)
        offered.check_settings(document, answers)
        intent, notes = resolve_intent(answers, offered)
        return intent, [*notes, *fits.check(intent.answers)]
    except InputFaults as error:
        raise _with_cluster_faults(error, document) from error


def _with_cluster_faults(error: InputFaults, document: yamlfile.Document) -> InputFaults:
    """Add the faults of readable answers compared with the cluster here."""
    faults, notes = _check_given(document)
    _print_notes(notes)
    placed = [_placed(fault, document) for fault in error.faults]
    return InputFaults(
        [*placed, *(fault for fault in faults if fault not in placed)], hint=error.hint
    )


def _check_given(
    document: yamlfile.Document, cluster: scheduler.SlurmFound | None = None
) -> tuple[list[Fault], list[str]]:
    kind = type_in(document.data)
    if get_value(document.data, "cluster_type") is not None and not (
        kind is not None and kind.has(SlurmConfig)
    ):
        return [], []
    faults, notes = slurm_checks.check_given(document.data, cluster)
    return [_placed(fault, document) for fault in faults], notes


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        console.echo(f"note: {note}", err=True)


def _placed(fault: Fault, document: yamlfile.Document) -> Fault:
    """A fault at a key, placed at the layer that has the key: ``file:line`` for the file."""
    if not has_key(document.data, fault.place):
        return fault
    place = document.place(tuple(fault.place.split(".")))
    return replace(fault, place=place if place.endswith(fault.place) else f"{place}: {fault.place}")


def _installed_folder(install: Path | None, settings: Sequence[str]) -> Path | None:
    """Return the installation whose recorded answers replace an answers file. None without one."""
    if any(
        setting.partition("=")[0].strip() in ("cluster_type", "install") for setting in settings
    ):
        return None
    try:
        folder = record.find_folder(install)
    except UsageError as error:
        if error.code == FOREIGN:
            raise
        return None  # there is none: the missing keys are reported
    return folder if record.answers_path(folder).is_file() else None


def _check_configured(install: Path | None) -> None:
    """Raise UsageError for an unreadable configuration here, rather than for missing answers."""
    try:
        folder = record.find_folder(install)
    except UsageError:
        return
    if (folder / CONFIG_FILE).is_file():
        record.read_own_config(folder)


def _show_plan(intent: Intent, notes: Sequence[str]) -> InstallPlan:
    """Print the plan of ``intent``, which is returned.

    Raises LlmbError if it cannot be carried out.
    """
    plan = plan_install(replace(intent, adopts=True))
    for note in notes:
        console.echo(fold(f"note: {note}", output_width(), "  "))
    costs = find_costs(plan.todo, plan.install, make_context(intent, threading.Event()))
    console.echo(show.format_plan(plan, costs))
    costs.require()
    return plan
