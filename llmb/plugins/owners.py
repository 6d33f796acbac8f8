# SPDX-License-Identifier: Apache-2.0
"""Resolves names that several plugins claim.

llmb's own plugin keeps its name. Of others none gets it, with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from llmb import api
from llmb.core.grouping import grouped
from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError, PluginError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A skipped plugin ``source`` (``distribution:entry``), the ``reason`` and its ``code``."""

    source: str
    reason: str
    code: str = "plugin-failed"
    #: The single faults with file, line and fix, if a file of the plugin is invalid.
    faults: tuple[Fault, ...] = ()
    #: What is skipped of the plugin, such as ``command 'list'``. Empty for its workload, or for
    #: all.
    part: str = ""

    @property
    def summary(self) -> str:
        """The reason, and which part of the plugin it is for."""
        return f"{self.part}: {self.reason}" if self.part else self.reason

    def __str__(self) -> str:
        """A sentence for users."""
        subject = f"{self.part} of plugin" if self.part else "plugin"
        return (
            f"{subject} {self.source} {'are' if self.part.endswith('s') else 'is'} skipped:"
            f" {self.reason}"
        )


def reason_of(error: LlmbError) -> str:
    """Return what failed, without the plugin's name.

    Of faults with file and line, it has each one with its fix.
    """
    if isinstance(error, PluginError):
        return error.reason
    faults = getattr(error, "faults", None) or [Fault(message=error.message, hint=error.hint)]
    return "; ".join(f"{fault} ({fault.hint})" if fault.hint else str(fault) for fault in faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Generic[T]):
    """An ``item`` that the plugin ``source`` offers as ``name``.

    Names with the same ``form`` are one.
    """

    source: str
    name: str
    form: str
    item: T


#: A workload and the plugin that offers it.
Offer: TypeAlias = "Claim[api.Workload]"


def settle(
    claims: Iterable[Claim[T]], kind: str, code: str, is_own: Callable[[str], bool]
) -> tuple[list[Claim[T]], list[Problem]]:
    """Return the claims that hold, and a problem for each other one.

    Of several plugins that claim a name, the one that ``is_own`` keeps it, however many others
    claim it too. Otherwise none gets it. A plugin that offers two items of one name keeps the
    first.
    """
    held: list[Claim[T]] = []
    problems: list[Problem] = []
    for rivals in grouped((claim.form, claim) for claim in claims).values():
        own_claims = [claim for claim in rivals if is_own(claim.source)]
        keeps = own_claims[:1] or (
            rivals[:1] if len({claim.source for claim in rivals}) == 1 else []
        )
        held += keeps
        for claim in rivals if len(rivals) > 1 else ():
            if claim in keeps:
                continue
            problems.append(_lost_claim(claim, keeps[0] if keeps else None, rivals, kind, code))
    return held, problems


def _lost_claim(
    claim: Claim[T], keeper: Claim[T] | None, rivals: Sequence[Claim[T]], kind: str, code: str
) -> Problem:
    part = "" if kind == "workload" else f"{kind} '{claim.name}'"
    if keeper is not None:
        owner = (
            "it"
            if keeper.source == claim.source
            else keeper.source
            if ":" in keeper.source
            else "llmb"
        )
        reason = f"{owner} already has the {kind} '{keeper.name}'; choose another name"
    else:
        rival_sources = ", ".join(
            dict.fromkeys(rival.source for rival in rivals if rival.source != claim.source)
        )
        reason = f"{rival_sources} also offers the {kind} '{claim.name}'; uninstall one of them"
    return Problem(source=claim.source, reason=reason, code=code, part=part)


def without_conflicts(
    offers: Sequence[Offer], is_own: Callable[[str], bool]
) -> tuple[list[Offer], list[Problem]]:
    """Omit plugins whose GPU types differ from llmb's, or from each other's."""
    problems: list[Problem] = []
    for offer in offers:
        for name, kind in offer.item.gpu_types.items():
            for source, definition, file in _definitions(offers, name):
                if (
                    definition is None
                    or definition == kind
                    or (is_own(offer.source) and ":" in source and not is_own(source))
                ):
                    continue
                place, other_place = _place(offer.item.file, name), _place(file, name)
                places = f"{place or offer.source} and {other_place or source}"
                fix = "give both the same numbers, or one of them another name"
                reason = f"{places} define the GPU type '{name}' differently ({fix})"
                problems.append(
                    Problem(source=offer.source, reason=reason, code="gpu-type-conflict")
                )
    refused = {problem.source for problem in problems}
    return [offer for offer in offers if offer.source not in refused], problems


def _definitions(
    offers: Sequence[Offer], name: str
) -> Iterable[tuple[str, api.GpuType | None, Path | None]]:
    """Yield who defines the GPU type ``name``, with the definition and its file."""
    from llmb.contract.gpus import GPUS_FILE, known_types

    types: Mapping[str, api.GpuType] = known_types()
    yield from ((offer.source, offer.item.gpu_types.get(name), offer.item.file) for offer in offers)
    yield "llmb", types.get(name), GPUS_FILE


def _place(file: Path | None, gpu_type: str) -> str:
    """``file:line`` of a GPU type, in a workload's file or in llmb's own table."""
    from llmb.contract.gpus import GPUS_FILE
    from llmb.core import yamlfile

    if file is None:
        return ""
    document = yamlfile.load(file)
    return document.place((gpu_type,) if file == GPUS_FILE else ("gpu_types", gpu_type))
