# SPDX-License-Identifier: Apache-2.0
"""Everything about NVIDIA's exemplar-performance, as hooks of llmb: hints for its commands, the
variables of its launch scripts, its job lists, its install directories, and the file that its
launcher writes beside a log.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmb.api import hookimpl

if TYPE_CHECKING:
    from llmb import api

LLMB_CONTRACT = "1.1"


@hookimpl
def llmb_hint(program: str, word: str, words: Sequence[str], options: Sequence[str]) -> str | None:
    """Return the whole command in llmb's words if ``word`` is one of NVIDIA's program."""
    from llmb_exemplar.words import hint_for

    return hint_for(program, word, words, options)


@hookimpl
def llmb_log_settings(log: Path) -> api.LogSettings | None:
    """Return the settings in the ``llmb-config_<JOB>.yaml`` beside ``log``."""
    from llmb_exemplar.run_config import settings_of

    return settings_of(log)


@hookimpl
def llmb_import(folder: Path) -> api.ForeignInstall | None:
    """Return the settings, images and runs in ``folder`` if it is exemplar-performance's."""
    from llmb_exemplar.install import find_install

    return find_install(folder)


@hookimpl
def llmb_variables() -> Sequence[api.LaunchVariable]:
    """Return the variables of NVIDIA's launch scripts."""
    from llmb.api import read_variables

    return read_variables(Path(__file__).with_name("variables.yaml"), "NVIDIA's launch scripts")


@hookimpl
def llmb_job_list(name: str, text: str) -> api.JobList:
    """Return the jobs in a list of tuples below headers. Any other text has a fault."""
    from llmb_exemplar.job_list import parse

    return parse(text, name=name)
