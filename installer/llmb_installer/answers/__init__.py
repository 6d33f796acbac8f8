# SPDX-License-Identifier: Apache-2.0
"""The answers that an installation is made from: what they may contain, and the layers they are read from."""

from llmb_installer.answers.checks import unusable_in
from llmb_installer.answers.layers import NOTHING, given, joined, missing, nested, value_at, with_layer, with_settings
from llmb_installer.answers.read import read_answers, require_valid
from llmb_installer.answers.schema import (
    ARCHITECTURES,
    AUTO,
    CPU_WHEELS,
    Answers,
    ImageAnswers,
    IndexUrl,
    Interpreter,
    Version,
    Versions,
    sections_of,
    to_yaml,
    without_nulls,
)

__all__ = [
    "ARCHITECTURES",
    "AUTO",
    "CPU_WHEELS",
    "NOTHING",
    "Answers",
    "ImageAnswers",
    "IndexUrl",
    "Interpreter",
    "Version",
    "Versions",
    "given",
    "joined",
    "missing",
    "nested",
    "read_answers",
    "require_valid",
    "sections_of",
    "to_yaml",
    "unusable_in",
    "value_at",
    "with_layer",
    "with_settings",
    "without_nulls",
]
