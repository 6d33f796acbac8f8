# SPDX-License-Identifier: Apache-2.0
"""Reads YAML into plain data with the line of each key; duplicate keys are faults."""

import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from llmb.errors import Fault, InputFaults
from llmb.system import files

KeyPath = tuple[Hashable, ...]
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # with libyaml ten times as fast
_ALIAS_FACTOR, _SMALL = 20, 50_000  # values: aliases may expand a document 20 times, and any to this size
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_LONGEST_NUMBER = 300  # characters
_DEEPEST = 200  # nested mappings and lists
_BRACKET = re.compile(r"[\[\]{}]")
_MAY_BE_DEEP = re.compile(r"(?:[-?:][ \t\n]{1,9}){50}|^ {100}", re.MULTILINE)


def dotted(path: KeyPath) -> str:
    """``sizes.1b.rows`` for a key path."""
    return ".".join(str(key) for key in path)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateKey:
    """Replaces a repeated ``key`` of a document's outermost mapping, so that the value below it can be checked too."""

    key: Hashable
    line: int

    def __str__(self) -> str:
        return str(self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Plain data (dict, list, scalars) with the name of its file and the 1-based line of each key path.

    ``texts``: each number as it was written, for fields that are text: release 25.10 is not 25.1. ``faults``: duplicate
    keys, which only a document read with ``strict=False`` can have.
    """

    name: str
    data: Any
    lines: dict[KeyPath, int] = field(default_factory=dict)
    texts: dict[KeyPath, str] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def place(self, path: KeyPath) -> str:
        """``file:line`` of a key path, or of its nearest ancestor that has a line."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines[path]}" if path in self.lines else self.name


def load(path: Path, *, name: str | None = None, strict: bool = True) -> Document:
    """Read the file ``path``; faults call it ``name``. Raises UsageError or InputFaults."""
    return parse(files.read_text(path, name=name), name=name or str(path), strict=strict)


def parse(text: str, *, name: str, strict: bool = True) -> Document:
    """Parse ``text``; an empty text is an empty mapping. Raises InputFaults with places.

    With ``strict=False`` duplicate keys are returned in ``faults`` and the last value is used. In the outermost mapping
    the first value is used, and the others are kept under a ``DuplicateKey`` so that the caller can check them too.
    """
    try:
        return _parse(text, name, strict)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else 1
        lines = text.splitlines()
        is_tabbed = mark and mark.line < len(lines) and re.match(r" *\t", lines[mark.line])
        hint = "indent with blanks, not with tabs" if is_tabbed else None
        message, place = f"not valid YAML: {error.problem}", f"{name}:{line}"
        raise InputFaults([Fault(place=place, message=message, hint=hint, code="yaml-invalid")]) from error
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise InputFaults([Fault(place=name, message=f"not valid YAML: {reason}", code="yaml-invalid")]) from error
    except RecursionError as error:
        raise InputFaults([Fault(place=name, message="nested too deep", code="yaml-too-deep")]) from error


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
    """Raise InputFaults for nesting that would overflow libyaml's stack and end the process."""
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
                raise InputFaults([Fault(place=place, message="nested too deep", code="yaml-too-deep")])
    finally:
        loader.dispose()


def _brackets(text: str) -> int:
    """The greatest number of brackets that are open at once."""
    depth = deepest = 0
    for found in _BRACKET.finditer(text):
        depth += 1 if found[0] in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _check_size(root: yaml.Node, name: str) -> None:
    """Raise InputFaults where aliases expand a small text to more than fits in memory, or a number is too long.

    The size of a node includes all nodes below it, each alias expanded; the time is linear in the text.
    """
    sizes: dict[int, int] = {}
    waiting: list[tuple[yaml.Node, bool]] = [(root, False)]
    while waiting:
        node, is_counted = waiting.pop()
        if isinstance(node, yaml.ScalarNode):
            if len(node.value) > _LONGEST_NUMBER and node.tag in _NUMBERS:
                place = f"{name}:{node.start_mark.line + 1}"
                message, hint = f"the number has more than {_LONGEST_NUMBER} characters", "put it in quotes"
                raise InputFaults([Fault(place=place, message=message, hint=hint, code="yaml-number-too-long")])
            sizes[id(node)] = 1
            continue
        below = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
        if is_counted:
            sizes[id(node)] = 1 + sum(sizes[id(part)] for part in below)
        elif id(node) not in sizes:
            sizes[id(node)] = 1  # ends the loop for a node that contains itself; it is refused later
            waiting.append((node, True))
            waiting += [(part, False) for part in below if id(part) not in sizes]
    if sizes[id(root)] > _ALIAS_FACTOR * len(sizes) + _SMALL:
        expanded = sizes[id(root)]
        count = str(expanded) if expanded < 10**15 else "more than fits in memory"
        message = f"aliases expand {len(sizes)} values to {count}"
        hint = "write the values out, or nest fewer aliases"
        raise InputFaults([Fault(place=name, message=message, hint=hint, code="yaml-too-large")])


class _Walk:
    """Converts the composed nodes to data, and records lines and duplicate keys.

    An aliased node is visited once for each use; the first visit flattens its merge keys in place.
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
        if isinstance(node, yaml.MappingNode):
            result: Any = self.mapping(node, path)
        else:
            result = [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        self.open.remove(id(node))
        return result

    def construct(self, node: yaml.Node) -> Any:
        try:
            return self.loader.construct_object(node, deep=True)
        except (ValueError, LookupError, AttributeError) as error:  # 2025-13-01 looks like a date to YAML
            kind = node.tag.rpartition(":")[2]
            raise self.invalid(node, f"'{node.value}' is not a valid {kind}", "put it in quotes") from error

    def invalid(self, node: yaml.Node, reason: str, hint: str | None = None) -> InputFaults:
        place = f"{self.name}:{node.start_mark.line + 1}"
        return InputFaults([Fault(place=place, message=f"not valid YAML: {reason}", hint=hint, code="yaml-invalid")])

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
                message = "a key must be a plain word"
                self.faults.append(Fault(place=f"{self.name}:{line}", message=message, code="key-invalid"))
                continue
            if key in seen and id(key_node) in own:
                first = self.lines[(*path, key)]
                message, hint = f"duplicate key '{key}' (first in line {first})", "merge the two into one"
                place, own_key = f"{self.name}:{line}", dotted((*path, key))
                self.faults.append(Fault(place=place, message=message, hint=hint, code="key-duplicate", key=own_key))
                key = key if path else DuplicateKey(key=key, line=line)
            if id(key_node) in own:
                seen.add(key)
            self.lines[(*path, key)] = line
            result[key] = self.value(value_node, (*path, key))
        return result
