# SPDX-License-Identifier: Apache-2.0
"""The answers that an installation is made from: what they may contain, and the layers they are read from."""

from llmb_installer.answers.layers import NOTHING, missing, with_layer
from llmb_installer.answers.read import read_answers, to_yaml
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
    "missing",
    "read_answers",
    "to_yaml",
    "with_layer",
]
