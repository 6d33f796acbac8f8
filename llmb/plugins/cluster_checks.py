# SPDX-License-Identifier: Apache-2.0
"""Checks a plugin's cluster type when it is loaded.

So its faults name the plugin and stop nothing else.
"""

from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

from llmb.contract.cluster_type import ClusterQuestion, ClusterTraits, ClusterType, is_name
from llmb.contract.sbatch import SECTION, SlurmConfig
from llmb.contract.schema import ClusterConfig
from llmb.core.checked import check_types

# Keys of an answers file that are none of cluster_config.yaml.
_ANSWERS = (
    "bridge_release framework image_folder images method node_architecture python python_download"
    " tokenizer"
)
ANSWER_KEYS = frozenset(
    f"{_ANSWERS} torch_cpu_index torch_index venv_type versions wheelhouse".split()
)


@cache
def reserved() -> frozenset[str]:
    """The keys that no section of a plugin may have."""
    return frozenset(field.name for field in fields(ClusterConfig)) | ANSWER_KEYS | {"plugins"}


def with_source(kind: Any, source: str) -> ClusterType:
    """Return a cluster type that knows its plugin ``source``.

    llmb's own types, without a distribution, stay as they are.

    Raises TypeError or ValueError for what cannot be right.
    """
    if not isinstance(kind, ClusterType):
        raise TypeError(f"{kind!r} is no ClusterType")
    if ":" not in source:
        return kind
    if not is_name(kind.name):
        raise ValueError(
            f"'{kind.name}' is no name of a cluster type: use lower-case letters, digits, - and _"
        )
    if not (isinstance(kind.create, str) and ":" in kind.create) and not callable(kind.create):
        raise TypeError(
            f"create of {kind.name} is neither a function nor its place, 'module:function'"
        )
    if kind.schema is not None and not is_dataclass(kind.schema):
        raise TypeError(f"schema of {kind.name} is not a dataclass")
    if kind.key in reserved() or (kind.key == SECTION and kind.schema is not SlurmConfig):
        raise ValueError(
            f"the section '{kind.key}' of {kind.name} is llmb's own: set another 'section'"
        )
    _check_questions(kind)
    traits = kind.traits_of(None)
    if not isinstance(traits, ClusterTraits):
        raise TypeError(f"traits of {kind.name} are {traits!r}, no ClusterTraits")
    check_types(traits)
    return replace(kind, source=source)


def _check_questions(kind: ClusterType) -> None:
    questions: Any = kind.questions
    if not isinstance(questions, tuple) or not all(
        isinstance(question, ClusterQuestion) for question in questions
    ):
        raise TypeError(f"questions of {kind.name} are no tuple of ClusterQuestion")
    if kind.questions and kind.schema is None:
        raise ValueError(f"{kind.name} has questions, and no schema for their answers")
    keys = [field.name for field in fields(kind.schema)] if kind.schema is not None else []
    if unknown_key := next(
        (question.key for question in kind.questions if question.key.partition(".")[0] not in keys),
        None,
    ):
        raise ValueError(f"{kind.name} asks for '{unknown_key}', which its section does not have")
