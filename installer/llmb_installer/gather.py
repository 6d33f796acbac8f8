# SPDX-License-Identifier: Apache-2.0
"""Gathers the answers from their layers: the file, the command line, and the questions where there is a terminal."""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from llmb.errors import Fault, InputFaults, UsageError
from llmb.system import console, files
from llmb.text import yamlfile
from llmb.text.yamlfile import Document, DuplicateKey
from llmb_installer.answers import NOTHING, missing, read_answers, to_yaml, with_layer
from llmb_installer.answers.layers import given, nested, value_at
from llmb_installer.answers.read import require_sound
from llmb_installer.applying import show
from llmb_installer.applying.apply import context_for
from llmb_installer.detect import slurm_fit
from llmb_installer.detect.runai_environment import with_variables
from llmb_installer.detect.scheduler import SlurmFound
from llmb_installer.fits import cluster_fit
from llmb_installer.planning import flow
from llmb_installer.planning.costs import find_costs
from llmb_installer.planning.plan import Intent, look
from llmb_installer.record import record
from llmb_installer.record.folder import find_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What is to be installed, and notes for the user; ``agreed``: she has seen the plan and said yes to it."""

    intent: Intent
    notes: tuple[str, ...]
    agreed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What the user chose to do with the installation in ``install`` that is there; the commands of that name do it."""

    action: Literal["remove", "repair"]
    install: Path
    workloads: tuple[str, ...] = ()


def layers(file: Path | None, install: Path | None = None, settings: Sequence[str] = ()) -> Document:
    """The answers of ``file``, over them ``settings`` (``slurm.account=team``), over them ``--install``.

    Raises UsageError for a setting that is none.
    """
    document = _without_repeats(yamlfile.load(file, strict=False)) if file is not None else NOTHING
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {setting} is not of the form KEY=VALUE", hint="as in --set slurm.account=team")
        option = f"--set {key.strip()}"
        document = with_layer(document, nested(key.strip(), _value(value, option)), option)
    return with_layer(document, {"install": str(install)} if install is not None else {}, "--install")


def _without_repeats(document: Document) -> Document:
    """Keys that stand twice are faults of the document, and no further keys."""
    if not isinstance(document.data, dict):
        return document
    return replace(
        document, data={key: value for key, value in document.data.items() if not isinstance(key, DuplicateKey)}
    )


def _value(text: str, option: str) -> Any:
    """What YAML makes of ``text``, but for numbers with a point, which are versions (2.10); nothing is null."""
    try:
        value = yamlfile.parse(f"value: {text}", name=option).data["value"]
    except InputFaults as error:
        said = f"{option}: {text} is not valid YAML"
        raise UsageError(said, hint="put it in quotes within the quotes: KEY='\"value\"'") from error
    return text.strip() if isinstance(value, float) else value


def gather(
    answers_file: Path | None, install: Path | None, settings: Sequence[str], *, terminal: bool, dry_run: bool
) -> Gathered | Change:
    """What the answers ask for here; what is missing is asked where there is a ``terminal``.

    Nothing is written but secrets that are typed. Raises InputFaults that name all that is missing, LlmbError.
    """
    offered, recorded = flow.known(), False
    if answers_file is None and not terminal and (folder := _made_by_answers(install, settings)) is not None:
        console.echo(f"note: by the answers that {folder} was made by: --config names others", err=True)
        answers_file, install, recorded = record.answers_path(folder), folder, True
    document = layers(answers_file, install, settings)
    if not terminal and not recorded:
        document, used = with_variables(document, os.environ)
        _tell([f"from the environment: {', '.join(used)}"] if used else [])
    if not terminal or not missing(document.data):
        intent, notes = _intent(document, offered, recorded=recorded)
        return Gathered(intent=intent, notes=tuple(notes))
    try:
        require_sound(document, offered.workloads)
    except InputFaults as error:
        raise _with_cluster_faults(error, document) from error
    from llmb_installer.detect.look import look as look_around
    from llmb_installer.wizard import ask

    console.echo("Looking at this machine and its cluster ...", err=True)
    detected = look_around(os.environ, console.current_folder(), install)
    if detected.damaged is not None and not given(document.data, "cluster_type"):
        raise detected.damaged.error
    _require_there(document, detected.slurm)
    asked = ask(
        document, detected, offered.plugins, lambda layered: _show_plan(layered, offered), os.environ, dry_run=dry_run
    )
    if asked.action != "install":
        return Change(action=asked.action, install=Path(asked.document.data["install"]), workloads=asked.workloads)
    intent, notes = _intent(asked.document, offered)
    return Gathered(intent=replace(intent, takes_over=True), notes=tuple(notes), agreed=True)


def _intent(document: Document, offered: flow.Known, *, recorded: bool = False) -> tuple[Intent, list[str]]:
    """What the answers ask for, held against the cluster here. Raises InputFaults at file and line, LlmbError."""
    try:
        intent, notes = flow.intent_of(read_answers(document, known=offered.workloads, recorded=recorded), offered)
        return intent, [*notes, *cluster_fit.check(intent.answers)]
    except InputFaults as error:
        raise _with_cluster_faults(error, document) from error


def _require_there(document: Document, found: SlurmFound | None) -> None:
    """Hold what is given so far against the cluster that was ``found``. Raises InputFaults."""
    faults, doubts = _held_against(document, found) if found is not None else ([], [])
    _tell(doubts)
    if faults:
        raise InputFaults(faults)


def _with_cluster_faults(error: InputFaults, document: Document) -> InputFaults:
    """The faults at file and line, with those that the cluster here has against what can be read of the answers."""
    faults, doubts = _held_against(document)
    _tell(doubts)
    placed = [_placed(fault, document) for fault in error.faults]
    return InputFaults([*placed, *(fault for fault in faults if fault not in placed)], hint=error.hint)


def _held_against(document: Document, found: SlurmFound | None = None) -> tuple[list[Fault], list[str]]:
    if value_at(document.data, "cluster_type") not in (None, "slurm"):
        return [], []
    faults, doubts = slurm_fit.of_given(document.data, found)
    return [_placed(fault, document) for fault in faults], doubts


def _tell(doubts: Sequence[str]) -> None:
    for doubt in doubts:
        console.echo(f"note: {doubt}", err=True)


def _placed(fault: Fault, document: Document) -> Fault:
    """The fault of a key at the layer that says it, ``file:line`` where that is the file."""
    if not given(document.data, fault.place):
        return fault
    place = document.place(tuple(fault.place.split(".")))
    return replace(fault, place=place if place.endswith(fault.place) else f"{place}: {fault.place}")


def _made_by_answers(install: Path | None, settings: Sequence[str]) -> Path | None:
    """The installation that is meant where no file is named: its own answers count, under what is given."""
    if any(setting.partition("=")[0].strip() in ("cluster_type", "install") for setting in settings):
        return None
    try:
        folder = find_folder(install, os.environ, console.current_folder())
    except UsageError:  # there is none: what is missing is told
        return None
    return folder if record.answers_path(folder).is_file() else None


def _show_plan(document: Document, offered: flow.Known) -> None:
    """Print the plan of the answers. Raises LlmbError for what stands in its way."""
    intent, notes = _intent(document, offered)
    plan = look(replace(intent, takes_over=True))
    for note in notes:
        console.echo(f"note: {note}")
    costs = find_costs(plan.todo, plan.install, context_for(intent, threading.Event()))
    console.echo(show.plan_text(plan, costs))
    costs.require()


def record_answers(intent: Intent, path: Path) -> None:
    """Write the answers in effect, a file that gives the same installation again."""
    files.write_text(path, to_yaml(intent.asked))
