# SPDX-License-Identifier: Apache-2.0
"""What runs are compared with, by its name: other runs, a file, an archive, an accepted baseline."""

from dataclasses import dataclass, replace

from llmb.archive.manifest import MANIFEST
from llmb.cli.context import Context
from llmb.cli.results import Choice, choose, gather_of
from llmb.config.locate import is_archive
from llmb.errors import LlmbError, UsageError
from llmb.results.result import Result
from llmb.system import files
from llmb.verdict import export
from llmb.verdict.export import Baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: its name, and its results (not judged)."""

    name: str
    results: tuple[Result, ...]


def find_side(context: Context, text: str | None, choice: Choice) -> Side:
    """The results of a JSON file, an experiment, or runs separated by commas; of all runs where ``text`` is None.

    Raises UsageError when there are none.
    """
    if text is not None and is_archive(text):
        context = context.of_archive(files.expand(text))
        return Side(name=text, results=tuple(result for _, result in gather_of(context, context.runs(), choice)))
    path = None if text is None else files.expand(text)
    if path is not None and path.is_file():
        try:
            return Side(name=path.name, results=tuple(choose(context, export.read_export(path), choice)))
        except LlmbError as error:
            if error.code == "file-damaged":  # the user's own file
                error.hint = "write it again: llmb-run results --format json > results.json"
            raise
    if text is not None and (text.endswith(".json") or "/" in text) and path and not path.is_dir():
        hint = "name runs, an experiment, or a file of llmb-run results --format json > results.json"
        raise UsageError(f"{text} is neither a file nor a run", hint=hint, code="side-unknown", value=text)
    runs = context.runs()
    if text is not None:
        named = [run for run in runs if run.job.experiment_name == text]
        runs = named or context.runs(tuple(part.strip() for part in text.split(",") if part.strip()))
    return Side(name=text or "all runs", results=tuple(result for _, result in gather_of(context, runs, choice)))


def find_baseline(context: Context, name: str, choice: Choice, ours: str | None = None) -> Baseline:
    """The baseline of this name; of an archive, the chosen runs in it. Raises UsageError where there is none.

    ``ours``: what is compared with it; an archive may have the baseline, which is else one of the install directory.
    """
    if not is_archive(name):
        if ours is not None and is_archive(ours):
            archived = context.of_archive(files.expand(ours)).config.llmb_install
            if name in export.baselines(archived):
                return export.read_baseline(archived, name)
        return export.read_baseline(context.config.llmb_install, name)
    own = context.of_archive(files.expand(name))
    results = gather_of(own, own.runs(), replace(choice, workloads=()))
    written = files.read_json(own.config.llmb_install / MANIFEST)
    return Baseline(
        called=files.expand(name).name,
        accepted=written.get("created") if isinstance(written, dict) else None,
        results=tuple(result for _, result in results),
    )


def refuse_reference(reference: str | None) -> None:
    """Raise UsageError for a release with ``--reference`` where nothing is compared with published figures."""
    if reference is not None:
        message, hint = "--reference needs published figures to compare with", "omit B and --baseline"
        raise UsageError(message, hint=hint, code="options-conflict", key="--reference")
