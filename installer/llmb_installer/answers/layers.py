# SPDX-License-Identifier: Apache-2.0
"""Joins the layers of answers (defaults < file < command line < terminal) with their sources."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from llmb.core import yamlfile
from llmb.core.values import dataclass
from llmb.core.yamlfile import Document, KeyPath
from llmb.errors import InputFaults, UsageError
from llmb_installer.cluster_types import type_in

NOTHING = Document(name="the answers", data={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layered(Document):
    """A document overridden by layers.

    ``sources`` names the layer of each key path that is not from the file.
    """

    sources: dict[KeyPath, str] = field(default_factory=dict)

    def place(self, path: KeyPath) -> str:
        """The layer of a key path. ``file:line`` for the file."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.sources:
                return self.sources[path[:end]]
            if path[:end] in self.lines:
                break
            below = [
                source
                for source_path, source in self.sources.items()
                if source_path[:end] == path[:end]
            ]
            if below:  # a section that only this layer has
                return below[-1]
        return Document.place(self, path)


def override(document: Document, layer: Mapping[str, Any], source: str) -> Document:
    """``document`` overridden by ``layer``, mappings key by key.

    Its faults are placed at ``source``.
    """
    if not layer or not isinstance(document.data, dict):
        return document
    paths = [*_leaves(layer, ())]
    lines = {
        path: line
        for path, line in document.lines.items()
        if not any(path[: len(p)] == p for p in paths)
    }
    texts = {path: text for path, text in document.texts.items() if path not in paths}
    return Layered(
        name=document.name,
        data=join(document.data, layer),
        lines=lines,
        texts=texts,
        sources={**getattr(document, "sources", {}), **dict.fromkeys(paths, source)},
        faults=document.faults,
    )


def override_by_settings(document: Document, settings: Iterable[str]) -> Document:
    """``document`` overridden by ``settings`` such as ``slurm.account=team``.

    Raises UsageError for an invalid one.
    """
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise UsageError(
                f"--set {setting} does not have the form KEY=VALUE",
                hint="such as --set slurm.account=team",
                code="setting-invalid",
                key="--set",
                value=setting,
            )
        option = f"--set {key.strip()}"
        document = override(document, nest(key.strip(), _value(value, option)), option)
    return document


def _value(text: str, option: str) -> Any:
    """``text`` as YAML, except numbers with a point, which are versions (2.10).

    An empty text is null.
    """
    try:
        value = yamlfile.parse(f"value: {text}", name=option).data["value"]
    except InputFaults as error:
        raise UsageError(
            f"{option}: {text} is not valid YAML",
            hint="put it in quotes within the quotes: KEY='\"value\"'",
            code="setting-invalid",
            key=option,
            value=text,
        ) from error
    return text.strip() if isinstance(value, float) else value


def join(below: Any, above: Any) -> Any:
    """``below`` overridden by ``above``. Two mappings are joined key by key."""
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        return {
            key: join(below.get(key), above[key]) if key in above else below[key]
            for key in {**below, **above}
        }
    return above


_PART = re.compile(r"""(?:^|\.)(?:"([^"]*)"|(file:[^"]+?\.py)|([^.]*))(?=\.|$)""")


def split_key(key: str) -> tuple[str, ...]:
    """Return the parts of a dotted key.

    A part with points is in quotes, or a plugin of a file: ``plugins.file:x.py.nodes``.
    """
    return tuple("".join(groups) for groups in _PART.findall(key))


def nest(key: str, value: Any) -> dict[str, Any]:
    """The layer in which the dotted ``key`` (``slurm.account``) has ``value``."""
    for part in reversed(split_key(key)):
        value = {part: value}
    layer: dict[str, Any] = value
    return layer


def has_key(data: Any, key: str) -> bool:
    """Return True if ``data`` has the dotted ``key``, even as null."""
    for part in key.split("."):
        if not isinstance(data, Mapping) or part not in data:
            return False
        data = data[part]
    return True


def get_value(data: Any, key: str) -> Any:
    """The value at the dotted ``key`` of ``data``. None without one."""
    for part in key.split("."):
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def find_missing_keys(data: Any) -> list[str]:
    """Return the required keys that ``data`` lacks. In a terminal, llmb-install asks for them."""
    kind = type_in(data)
    required = ["cluster_type", "install", *(kind.required if kind is not None else ())]
    return [key for key in required if get_value(data, key) is None]


def _leaves(data: Any, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path
