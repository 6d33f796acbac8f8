# SPDX-License-Identifier: Apache-2.0
"""Keeps beside a run how its plugin read the log, so that its figures outlive the plugin."""

import contextlib

from llmb.errors import LlmbError
from llmb.logs.formats import ParseSpec
from llmb.runs.record import RunRecord
from llmb.system import files
from llmb.text import typed, yamlfile

PARSE = "parse.json"


def keep(run: RunRecord, spec: ParseSpec) -> None:
    """Keep the ``spec`` that read a run that has ended, where it is not llmb's own. No room for it is no fault."""
    if spec == ParseSpec() or not run.place.is_dir():
        return
    path = run.place / PARSE
    with contextlib.suppress(LlmbError):
        data = typed.to_data(spec)
        if _read(run) != data:
            files.write_json(path, data)


def kept(run: RunRecord) -> ParseSpec | None:
    """The spec that was kept of the run's present attempt; None without one that can be read."""
    with contextlib.suppress(LlmbError, ValueError, TypeError):
        if (data := _read(run)) is not None:
            return typed.read(ParseSpec, yamlfile.Document(name=str(run.place / PARSE), data=data))
    return None


def _read(run: RunRecord) -> object:
    try:
        return files.read_json(run.place / PARSE)
    except LlmbError:
        return None
