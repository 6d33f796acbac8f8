# SPDX-License-Identifier: Apache-2.0
"""Joins the layers of answers (defaults < file < command line < terminal), and keeps the source of each value."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmb.errors import InputFaults, UsageError
from llmb.text import yamlfile
from llmb.text.yamlfile import Document, KeyPath
from llmb_installer.cluster_types import type_in

NOTHING = Document(name="the answers", data={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layered(Document):
    """A document overridden by layers; ``sources`` names the layer of each key path that is not from the file."""

    sources: dict[KeyPath, str] = field(default_factory=dict)

    def place(self, path: KeyPath) -> str:
        """The layer of a key path; ``file:line`` for the file."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.sources:
                return self.sources[path[:end]]
            if path[:end] in self.lines:
                break
            below = [source for own, source in self.sources.items() if own[:end] == path[:end]]
            if below:  # a section that only this layer has
                return below[-1]
        return Document.place(self, path)


def with_layer(document: Document, layer: Mapping[str, Any], source: str) -> Document:
    """``document`` overridden by ``layer``, mappings key by key; its faults are placed at ``source``."""
    if not layer or not isinstance(document.data, dict):
        return document
    paths = [*_leaves(layer, ())]
    lines = {path: line for path, line in document.lines.items() if not any(path[: len(p)] == p for p in paths)}
    texts = {path: text for path, text in document.texts.items() if path not in paths}
    return Layered(
        name=document.name,
        data=joined(document.data, layer),
        lines=lines,
        texts=texts,
        sources={**getattr(document, "sources", {}), **dict.fromkeys(paths, source)},
        faults=document.faults,
    )


def with_settings(document: Document, settings: Iterable[str]) -> Document:
    """``document`` overridden by ``settings`` such as ``slurm.account=team``. Raises UsageError for an invalid one."""
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
        document = with_layer(document, nested(key.strip(), _value(value, option)), option)
    return document


def _value(text: str, option: str) -> Any:
    """``text`` as YAML, except numbers with a point, which are versions (2.10); an empty text is null."""
    try:
        value = yamlfile.parse(f"value: {text}", name=option).data["value"]
    except InputFaults as error:
        hint = "put it in quotes within the quotes: KEY='\"value\"'"
        raise UsageError(
            f"{option}: {text} is not valid YAML", hint=hint, code="setting-invalid", key=option, value=text
        ) from error
    return text.strip() if isinstance(value, float) else value


def joined(below: Any, above: Any) -> Any:
    """``below`` overridden by ``above``; two mappings are joined key by key."""
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        return {key: joined(below.get(key), above[key]) if key in above else below[key] for key in {**below, **above}}
    return above


_PART = re.compile(r"""(?:^|\.)(?:"([^"]*)"|(file:[^"]+?\.py)|([^.]*))(?=\.|$)""")


def parts_of(key: str) -> tuple[str, ...]:
    """The parts of a dotted key; one with points is in quotes, or a plugin of a file: ``plugins.file:x.py.nodes``."""
    return tuple("".join(found) for found in _PART.findall(key))


def nested(key: str, value: Any) -> dict[str, Any]:
    """The layer in which the dotted ``key`` (``slurm.account``) has ``value``."""
    for part in reversed(parts_of(key)):
        value = {part: value}
    found: dict[str, Any] = value
    return found


def given(data: Any, key: str) -> bool:
    """Whether ``data`` has the dotted ``key``, even as null."""
    for part in key.split("."):
        if not isinstance(data, Mapping) or part not in data:
            return False
        data = data[part]
    return True


def value_at(data: Any, key: str) -> Any:
    """The value at the dotted ``key`` of ``data``; None without one."""
    for part in key.split("."):
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def missing(data: Any) -> list[str]:
    """The required keys that ``data`` does not have; in a terminal, llmb-install asks for them."""
    kind = type_in(data)
    wanted = ["cluster_type", "install", *(kind.required if kind is not None else ())]
    return [key for key in wanted if value_at(data, key) is None]


def _leaves(data: Any, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path
