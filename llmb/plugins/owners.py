# SPDX-License-Identifier: Apache-2.0
"""Resolves names that several plugins claim: llmb's own plugin keeps its name; of others, none does, with an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from llmb import api
from llmb.errors import Fault, LlmbError, PluginError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A plugin that is skipped: ``source`` is ``distribution:entry``, ``reason`` the cause, ``code`` its kind.

    ``faults``: the single faults with file, line and fix, if a file of the plugin is invalid. ``part``: what is skipped
    of the plugin, such as ``command 'list'``; empty for its workload, or for all.
    """

    source: str
    reason: str
    code: str = "plugin-failed"
    faults: tuple[Fault, ...] = ()
    part: str = ""

    @property
    def summary(self) -> str:
        """The reason, and which part of the plugin it is for."""
        return f"{self.part}: {self.reason}" if self.part else self.reason

    def __str__(self) -> str:
        """A sentence for users."""
        what = f"{self.part} of plugin" if self.part else "plugin"
        return f"{what} {self.source} {'are' if self.part.endswith('s') else 'is'} skipped: {self.reason}"


def reason_of(error: LlmbError) -> str:
    """What failed, without the plugin's name; of faults with file and line, each one with its fix."""
    if isinstance(error, PluginError):
        return error.reason
    faults = getattr(error, "faults", None) or [Fault(message=error.message, hint=error.hint)]
    return "; ".join(f"{fault} ({fault.hint})" if fault.hint else str(fault) for fault in faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A workload and the plugin that offers it."""

    source: str
    workload: api.Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Generic[T]):
    """``item``, which the plugin ``source`` offers as ``name``; names with the same ``form`` are one."""

    source: str
    name: str
    form: str
    item: T


def settled(
    claims: Iterable[Claim[T]], kind: str, code: str, is_own: Callable[[str], bool]
) -> tuple[list[Claim[T]], list[Problem]]:
    """The claims that hold, and a problem for each other one.

    Of several plugins that claim a name, the one that ``is_own`` keeps it, however many others claim it too; otherwise
    none gets it. A plugin that offers two items of one name keeps the first.
    """
    by_form: dict[str, list[Claim[T]]] = {}
    for claim in claims:
        by_form.setdefault(claim.form, []).append(claim)
    held: list[Claim[T]] = []
    problems: list[Problem] = []
    for rivals in by_form.values():
        own = [claim for claim in rivals if is_own(claim.source)]
        keeps = own[:1] or (rivals[:1] if len({claim.source for claim in rivals}) == 1 else [])
        held += keeps
        for claim in rivals if len(rivals) > 1 else ():
            if claim in keeps:
                continue
            problems.append(_lost(claim, keeps[0] if keeps else None, rivals, kind, code))
    return held, problems


def _lost(claim: Claim[T], keeper: Claim[T] | None, rivals: Sequence[Claim[T]], kind: str, code: str) -> Problem:
    part = "" if kind == "workload" else f"{kind} '{claim.name}'"
    if keeper is not None:
        whose = "it" if keeper.source == claim.source else keeper.source if ":" in keeper.source else "llmb"
        reason = f"{whose} already has the {kind} '{keeper.name}'; choose another name"
    else:
        others = ", ".join(dict.fromkeys(rival.source for rival in rivals if rival.source != claim.source))
        reason = f"{others} also offers the {kind} '{claim.name}'; uninstall one of them"
    return Problem(source=claim.source, reason=reason, code=code, part=part)


def without_conflicts(offers: Sequence[Offer], is_own: Callable[[str], bool]) -> tuple[list[Offer], list[Problem]]:
    """Without plugins whose GPU types differ from llmb's; of two that differ from each other, both are refused."""
    problems: list[Problem] = []
    for offer in offers:
        for name, kind in offer.workload.gpu_types.items():
            for source, known, file in _others(offers, name):
                if known is None or known == kind or (is_own(offer.source) and ":" in source and not is_own(source)):
                    continue
                here, there = _place(offer.workload.file, name), _place(file, name)
                both = f"{here or offer.source} and {there or source}"
                fix = "give both the same numbers, or one of them another name"
                reason = f"{both} define the GPU type '{name}' differently ({fix})"
                problems.append(Problem(source=offer.source, reason=reason, code="gpu-type-conflict"))
    refused = {problem.source for problem in problems}
    return [offer for offer in offers if offer.source not in refused], problems


def _others(offers: Sequence[Offer], name: str) -> Iterable[tuple[str, api.GpuType | None, Path | None]]:
    """Who defines the GPU type ``name``: every plugin and llmb, with the definition and its file."""
    from llmb.workload.gpus import GPUS_FILE, known_types

    known: Mapping[str, api.GpuType] = known_types()
    yield from ((other.source, other.workload.gpu_types.get(name), other.workload.file) for other in offers)
    yield "llmb", known.get(name), GPUS_FILE


def _place(file: Path | None, gpu_type: str) -> str:
    """``file:line`` of a GPU type, in a workload's file or in llmb's own table."""
    from llmb.text import yamlfile
    from llmb.workload.gpus import GPUS_FILE

    if file is None:
        return ""
    document = yamlfile.load(file)
    return document.place((gpu_type,) if file == GPUS_FILE else ("gpu_types", gpu_type))
