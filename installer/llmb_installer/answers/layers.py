# SPDX-License-Identifier: Apache-2.0
"""Answers are layers: defaults < the file < the command line < the terminal. Joins them, each value with its source."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmb.text import yamlfile
from llmb.text.yamlfile import Document, KeyPath

NOTHING = yamlfile.Document(name="the answers", data={})
_ABOUT_RUNAI = ("base_url", "project", "pvc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layered(Document):
    """A document with layers over it: ``sources`` names the layer of each key path that is not the file's."""

    sources: dict[KeyPath, str] = field(default_factory=dict)

    def place(self, path: KeyPath) -> str:
        """The layer that a key path comes from, ``file:line`` where it is the file's."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.sources:
                return self.sources[path[:end]]
            if path[:end] in self.lines:
                break
            below = [source for own, source in self.sources.items() if own[:end] == path[:end]]
            if below:  # a section that only this layer speaks of
                return below[-1]
        return Document.place(self, path)


def with_layer(document: Document, layer: Mapping[str, Any], source: str) -> Document:
    """``document`` with ``layer`` over it, mappings joined key by key; faults in it are placed at ``source``."""
    if not layer or not isinstance(document.data, dict):
        return document
    paths = [*_leaves(layer, ())]
    over = {path: line for path, line in document.lines.items() if not any(path[: len(p)] == p for p in paths)}
    texts = {path: text for path, text in document.texts.items() if path not in paths}
    return Layered(
        name=document.name,
        data=joined(document.data, layer),
        lines=over,
        texts=texts,
        sources={**getattr(document, "sources", {}), **dict.fromkeys(paths, source)},
        faults=document.faults,
    )


def joined(below: Any, above: Any) -> Any:
    """``above`` over ``below``; of two mappings, key by key."""
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        return {key: joined(below.get(key), above[key]) if key in above else below[key] for key in {**below, **above}}
    return above


def nested(key: str, value: Any) -> dict[str, Any]:
    """The layer in which the dotted ``key`` (``slurm.account``) has ``value``."""
    for part in reversed(key.split(".")):
        value = {part: value}
    found: dict[str, Any] = value
    return found


def given(data: Any, key: str) -> bool:
    """Whether ``data`` says anything at the dotted ``key``, null too."""
    for part in key.split("."):
        if not isinstance(data, Mapping) or part not in data:
            return False
        data = data[part]
    return True


def value_at(data: Any, key: str) -> Any:
    """What ``data`` says at the dotted ``key``; None where it says nothing."""
    for part in key.split("."):
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def missing(data: Any) -> list[str]:
    """The keys without which nothing can be installed, and that ``data`` does not give: what a terminal is asked."""
    wanted = ["cluster_type", "install"]
    if value_at(data, "cluster_type") == "runai":
        wanted += ["gpu_type", *(f"runai.{key}" for key in _ABOUT_RUNAI)]
    return [key for key in wanted if value_at(data, key) is None]


def _leaves(data: Any, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path
