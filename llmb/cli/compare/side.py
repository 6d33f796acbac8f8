# SPDX-License-Identifier: Apache-2.0
"""Finds what `compare` is asked to compare: runs, an experiment, an exported file, a baseline."""

from dataclasses import dataclass

from llmb.cli.context import Context
from llmb.cli.results.choose import Choice, choose, gather_of
from llmb.errors import UsageError
from llmb.results import Result
from llmb.system import files
from llmb.verdict.export import read_baseline, read_export

PUBLISHED = "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: its name in messages, and its results (not judged)."""

    name: str
    results: tuple[Result, ...]


def find_side(context: Context, text: str | None, choice: Choice) -> Side:
    """The results that ``text`` means, of all runs where None: a JSON file, an experiment's name, or runs with commas.

    Raises UsageError when it means nothing.
    """
    if text is not None and (path := files.expand(text)).is_file():
        return Side(name=path.name, results=tuple(choose(context, read_export(path), choice)))
    if text is not None and _means_a_file(text):
        hint = "write one: llmb-run results --format json > results.json; or name runs, or an experiment"
        raise UsageError(f"there is no file {text}, and no run is called so", hint=hint)
    runs = context.runs()
    if text is not None:
        named = [run for run in runs if run.job.experiment_name == text]
        runs = named or context.runs(tuple(part.strip() for part in text.split(",") if part.strip()))
    return Side(name=text or "all runs", results=tuple(result for _, result in gather_of(context, runs, choice)))


def _means_a_file(text: str) -> bool:
    """Whether it looks like the name of results in a file and is no folder, which may be a run's."""
    return not files.expand(text).is_dir() and (text.endswith(".json") or "/" in text)


def baseline_side(context: Context, name: str) -> Side:
    """The baseline ``name`` of this install."""
    return Side(name=f"baseline {name}", results=tuple(read_baseline(context.config.llmb_install, name)))
