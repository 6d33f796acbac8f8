# SPDX-License-Identifier: Apache-2.0
"""Reads YAML into plain data that remembers its lines, and refuses a key given twice."""

import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from llmb.errors import Fault, InputFaults
from llmb.system import files

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C one is ten times as fast, where libyaml is there

KeyPath = tuple[Hashable, ...]
_MOST_OF_ALIASES, _FREE = 20, 50_000  # what aliases may make of each value, and of a small document
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_LONGEST_NUMBER = 300  # characters
_DEEPEST = 200  # mappings and lists in each other
_BRACKET = re.compile(r"[\[\]{}]")
_MAY_BE_DEEP = re.compile(r"(?:[-?:][ \t\n]{1,9}){50}|^ {100}", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """In a document's outermost mapping the key of what stands under a ``key`` that was there before, by its line."""

    key: Hashable
    line: int

    def __str__(self) -> str:
        return str(self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Plain data (dict, list, scalars) with the file it came from and the 1-based line of each key path.

    ``texts`` has numbers as they were written, for where text was meant: a release 25.10 is not 25.1. ``faults`` are
    keys that stand twice; only a document read with ``strict=False`` has any.
    """

    name: str
    data: Any
    lines: dict[KeyPath, int] = field(default_factory=dict)
    texts: dict[KeyPath, str] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def place(self, path: KeyPath) -> str:
        """``file:line`` of a key path, of its nearest known ancestor where it has no line of its own."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines[path]}" if path in self.lines else self.name


def load(path: Path, *, name: str | None = None, strict: bool = True) -> Document:
    """The document in the file ``path``; ``name`` is what faults call it. Raises UsageError or InputFaults."""
    return parse(files.read_text(path, name=name), name=name or str(path), strict=strict)


def parse(text: str, *, name: str, strict: bool = True) -> Document:
    """The document in ``text``; an empty one is an empty mapping. Raises InputFaults with places.

    With ``strict`` False a key that stands twice is left to the caller in ``faults``: the last value counts. In the
    outermost mapping the first one does, and the further ones stand under ``Again``, to be looked through as well.
    """
    try:
        return _parse(text, name, strict)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else 1
        hint = "indent with blanks, not with tabs" if mark and _is_tabbed(text, mark.line) else None
        fault = Fault(place=f"{name}:{line}", message=f"not valid YAML: {error.problem}", hint=hint)
        raise InputFaults([fault]) from error
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise InputFaults([Fault(place=name, message=f"not valid YAML: {reason}")]) from error
    except RecursionError as error:
        raise InputFaults([Fault(place=name, message="it is nested too deep")]) from error


def _is_tabbed(text: str, index: int) -> bool:
    lines = text.splitlines()
    return index < len(lines) and re.match(r" *\t", lines[index]) is not None


def _parse(text: str, name: str, strict: bool) -> Document:
    _check_depth(text, name)
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return Document(name=name, data={})
        _check_size(node, name)
        walk = _Walk(loader, name)
        data = walk.value(node, ())
    finally:
        loader.dispose()
    if walk.faults and strict:
        raise InputFaults(walk.faults)
    return Document(name=name, data=data, lines=walk.lines, texts=walk.texts, faults=tuple(walk.faults))


def _check_depth(text: str, name: str) -> None:
    """Raise InputFaults for what is nested deeper than libyaml's stack is: it would end the process."""
    if _MAY_BE_DEEP.search(text) is None and _brackets(text) <= _DEEPEST:
        return
    loader, depth = Loader(text), 0
    try:
        while loader.check_event():
            event = loader.get_event()
            opens = isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent))
            closes = isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent))
            depth += opens - closes
            if depth > _DEEPEST:
                place = f"{name}:{event.start_mark.line + 1}"
                raise InputFaults([Fault(place=place, message="it is nested too deep")])
    finally:
        loader.dispose()


def _brackets(text: str) -> int:
    """How many brackets are open at most."""
    depth = deepest = 0
    for found in _BRACKET.finditer(text):
        depth += 1 if found[0] in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _check_size(root: yaml.Node, name: str) -> None:
    """Raise InputFaults where aliases make of little text what no memory holds: each multiplies what it stands for.

    A node counts with all below it, as often as it is meant; to count takes as long as the text is.
    """
    sizes: dict[int, int] = {}
    waiting: list[tuple[yaml.Node, bool]] = [(root, False)]
    while waiting:
        node, is_counted = waiting.pop()
        if isinstance(node, yaml.ScalarNode):
            if len(node.value) > _LONGEST_NUMBER and node.tag in _NUMBERS:
                place = f"{name}:{node.start_mark.line + 1}"
                raise InputFaults([Fault(place=place, message="a number is too long", hint="put it in quotes")])
            sizes[id(node)] = 1
            continue
        below = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
        if is_counted:
            sizes[id(node)] = 1 + sum(sizes[id(part)] for part in below)
        elif id(node) not in sizes:
            sizes[id(node)] = 1  # so that one which refers to itself has an end; it is refused later
            waiting.append((node, True))
            waiting += [(part, False) for part in below if id(part) not in sizes]
    if sizes[id(root)] > _MOST_OF_ALIASES * len(sizes) + _FREE:
        message = f"its aliases make {len(sizes)} values into {_about(sizes[id(root)])}"
        raise InputFaults([Fault(place=name, message=message, hint="write them out, or use fewer aliases in aliases")])


def _about(number: int) -> str:
    return str(number) if number < 10**15 else "more than any memory holds"


class _Walk:
    """One pass over the composed nodes: data, lines, and the keys that stand twice.

    An aliased node is passed once for each place it stands at; flattening its merges changes it the first time.
    """

    def __init__(self, loader: Any, name: str) -> None:
        self.loader, self.name = loader, name
        self.lines: dict[KeyPath, int] = {}
        self.texts: dict[KeyPath, str] = {}
        self.own_keys: dict[int, set[int]] = {}
        self.open: set[int] = set()
        self.faults: list[Fault] = []

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            value = self.construct(node)
            if type(value) in (int, float):
                self.texts[path] = node.value
            return value
        if id(node) in self.open:
            raise self.invalid(node, "a mapping or list refers to itself")
        self.open.add(id(node))
        result = self.mapping(node, path) if isinstance(node, yaml.MappingNode) else self.sequence(node, path)
        self.open.remove(id(node))
        return result

    def construct(self, node: yaml.Node) -> Any:
        try:
            return self.loader.construct_object(node, deep=True)
        except (ValueError, LookupError, AttributeError) as error:  # 2025-13-01 looks like a date to YAML
            kind = node.tag.rpartition(":")[2]
            raise self.invalid(node, f"'{node.value}' is no {kind}", "put it in quotes") from error

    def invalid(self, node: yaml.Node, reason: str, hint: str | None = None) -> InputFaults:
        place = f"{self.name}:{node.start_mark.line + 1}"
        return InputFaults([Fault(place=place, message=f"not valid YAML: {reason}", hint=hint)])

    def sequence(self, node: yaml.Node, path: KeyPath) -> list[Any]:
        return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[Hashable, Any]:
        written = {id(key) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"}
        own = self.own_keys.setdefault(id(node), written)
        self.loader.flatten_mapping(node)
        result: dict[Hashable, Any] = {}
        seen: set[Hashable] = set()
        for key_node, value_node in node.value:
            key = self.construct(key_node)
            line = key_node.start_mark.line + 1
            if not isinstance(key, Hashable):
                self.faults.append(Fault(place=f"{self.name}:{line}", message="a key must be a plain word"))
                continue
            if key in seen and id(key_node) in own:
                first = self.lines[(*path, key)]
                message = f"'{key}' stands twice (first in line {first})"
                self.faults.append(Fault(place=f"{self.name}:{line}", message=message, hint="join the two"))
                key = key if path else Again(key=key, line=line)
            if id(key_node) in own:
                seen.add(key)
            self.lines[(*path, key)] = line
            result[key] = self.value(value_node, (*path, key))
        return result
