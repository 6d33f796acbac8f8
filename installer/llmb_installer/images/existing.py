# SPDX-License-Identifier: Apache-2.0
"""What to do with an image that is there already: use it, take it over with a record of its own, or build it again."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import llmb
from llmb.config import images as image_files
from llmb.errors import LlmbError
from llmb.system import shell
from llmb_installer.images import whole
from llmb_installer.images.architecture import architecture_of
from llmb_installer.images.facts import ImageFacts, against, read_facts, write_facts
from llmb_installer.images.settings import ELSEWHERE, Progress
from llmb_installer.registry.manifests import machine_name
from llmb_installer.registry.reference import Reference


def usable(target: Path, reference: Reference, architecture: str, progress: Progress) -> ImageFacts | None:
    """The facts of the image at ``target`` where it is whole and the one that is wanted; None when it is to be built.

    Raises LlmbError when it is another image, which is not overwritten.
    """
    if not target.exists():
        return None
    facts, fault = _look(target)
    if fault is None and facts is None:
        facts, fault = _adopt(target, reference, architecture, progress)
    if facts is not None and str(Reference.parse(facts.reference)) != str(reference):
        message = f"{target} is the image {facts.reference}, not {reference}"
        raise LlmbError(message, hint=f"remove that one, or choose {ELSEWHERE}")
    if fault is None and facts is not None and facts.architecture not in (None, architecture):
        fault = f"it is for {machine_name(facts.architecture)}, the nodes are {machine_name(architecture)}"
    if fault is not None:
        progress.say(f"{target}: {fault}; it is built again")
        return None
    return facts


def _look(target: Path) -> tuple[ImageFacts | None, str | None]:
    """What is recorded of an image, and what is wrong with it."""
    fault = image_files.superblock_fault(target)
    try:
        facts = read_facts(target)
    except LlmbError:
        return None, fault  # a damaged record is as good as none
    if fault is None and facts is not None:
        faults = against(target, facts, deep=False)
        fault = faults[0] if faults else None
        mtime = target.stat().st_mtime_ns
        if fault is None and facts.mtime_ns != mtime:  # it was copied: its content has been compared just now
            facts = replace(facts, mtime_ns=mtime)
            write_facts(target, facts)
    return facts, fault


def _adopt(
    target: Path, reference: Reference, architecture: str, progress: Progress
) -> tuple[ImageFacts | None, str | None]:
    """Take an image over that has no record, as far as it can be checked."""
    progress.say(f"{target} is there without a record: checking it")
    if (program := shutil.which("unsquashfs")) and shell.run([program, "-s", str(target)]).code != 0:
        return None, "unsquashfs cannot read it"
    found = architecture_of(target)
    if found not in (None, architecture):
        return None, f"the programs in it are for {machine_name(found)}, the nodes are {machine_name(architecture)}"
    stat = target.stat()
    facts = ImageFacts(
        reference=str(reference),
        index_digest=None,
        digest=None,
        architecture=found,
        options=(),
        sha256=whole.sha256(target),
        size=stat.st_size,
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
        llmb=llmb.__version__,
        builder="unknown",
        adopted=True,
        mtime_ns=stat.st_mtime_ns,
    )
    write_facts(target, facts)
    progress.say(f"{target} is whole as far as can be told, and is used as {reference}")
    return facts, None
