# SPDX-License-Identifier: Apache-2.0
"""The answers that an installation is made from: what they may say, and the layers that they are read from."""

from llmb_installer.answers.layers import NOTHING, missing, with_layer
from llmb_installer.answers.read import read_answers, to_yaml
from llmb_installer.answers.schema import ARCHITECTURES, AUTO, Answers, ImageAnswers, Versions
from llmb_installer.answers.words import CPU_WHEELS, IndexUrl, Interpreter, Version

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
