# SPDX-License-Identifier: Apache-2.0
"""Parses YAML into plain data with the line of each key. Duplicate keys are faults."""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from llmb.core.document import Document, DuplicateKey, KeyPath, dotted
from llmb.errors import Fault, InputFaults

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # with libyaml ten times as fast
# values: aliases may expand a document 20 times, and any to this size
_ALIAS_FACTOR, _SMALL = 20, 50_000
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_LONGEST_NUMBER = 300  # characters
_DEEPEST = 200  # nested mappings and lists
# newer versions of libyaml have a limit of their own
_TOO_DEEP_FOR_LIBYAML = "exceeded maximum nesting depth"
_MERGE = "tag:yaml.org,2002:merge"
# No path, variable or file of UTF-8 can have these; YAML writes them as "\0" and "\ud800".
_UNUSABLE = re.compile("[\0\ud800-\udfff]")
_BRACKET = re.compile(r"[\[\]{}]")
_MAY_BE_DEEP = re.compile(r"(?:[-?:][ \t\n]{1,9}){50}|^ {100}", re.MULTILINE)


def parse(text: str, *, name: str, strict: bool = True) -> Document:
    """Parse ``text``. An empty text is an empty mapping. Raises InputFaults with places.

    With ``strict=False`` duplicate keys are returned in ``faults`` and the last value is used. In
    the outermost mapping the first value is used, and the others are kept under a ``DuplicateKey``
    so that the caller can check them too.
    """
    try:
        return _parse(text, name, strict)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark else 1
        lines = text.splitlines()
        is_tabbed = mark and mark.line < len(lines) and re.match(r" *\t", lines[mark.line])
        hint = "indent with blanks, not with tabs" if is_tabbed else None
        if error.problem == _TOO_DEEP_FOR_LIBYAML:
            raise InputFaults([_too_deep(f"{name}:{line}")]) from error
        message, place = f"not valid YAML: {error.problem}", f"{name}:{line}"
        raise InputFaults(
            [Fault(place=place, message=message, hint=hint, code="yaml-invalid")]
        ) from error
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        raise InputFaults(
            [Fault(place=name, message=f"not valid YAML: {reason}", code="yaml-invalid")]
        ) from error
    except RecursionError as error:
        raise InputFaults([_too_deep(name)]) from error


def _too_deep(place: str) -> Fault:
    return Fault(place=place, message="nested too deep", code="yaml-too-deep")


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
    return Document(
        name=name, data=data, lines=walk.lines, texts=walk.texts, faults=tuple(walk.faults)
    )


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
                raise InputFaults([_too_deep(f"{name}:{event.start_mark.line + 1}")])
    finally:
        loader.dispose()


def _brackets(text: str) -> int:
    """The greatest number of brackets that are open at once."""
    depth = deepest = 0
    for match in _BRACKET.finditer(text):
        depth += 1 if match[0] in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _check_size(root: yaml.Node, name: str) -> None:
    """Raise InputFaults for aliases that fill the memory, or a number that is too long.

    The size of a node includes all nodes below it, each alias expanded. The time is linear in the
    text.
    """
    sizes: dict[int, int] = {}
    waiting: list[tuple[yaml.Node, bool]] = [(root, False)]
    while waiting:
        node, is_counted = waiting.pop()
        if isinstance(node, yaml.ScalarNode):
            if len(node.value) > _LONGEST_NUMBER and node.tag in _NUMBERS:
                raise InputFaults(
                    [
                        Fault(
                            place=f"{name}:{node.start_mark.line + 1}",
                            message=f"the number has more than {_LONGEST_NUMBER} characters",
                            hint="put it in quotes",
                            code="yaml-number-too-long",
                        )
                    ]
                )
            sizes[id(node)] = 1
            continue
        below = [
            part for item in node.value for part in (item if isinstance(item, tuple) else (item,))
        ]
        if is_counted:
            sizes[id(node)] = 1 + sum(sizes[id(part)] for part in below)
        elif id(node) not in sizes:
            # ends the loop for a node that contains itself; it is refused later
            sizes[id(node)] = 1
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

    An aliased node is visited once for each use. The first visit flattens its merge keys in place.
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
            if type(value) in (int, float) and str(value) != node.value:
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
            value = self.loader.construct_object(node, deep=True)
        # 2025-13-01 looks like a date to YAML
        except (ValueError, LookupError, AttributeError) as error:
            kind = node.tag.rpartition(":")[2]
            raise self.invalid(
                node, f"'{node.value}' is not a valid {kind}", "put it in quotes"
            ) from error
        if isinstance(value, str) and (unusable := _UNUSABLE.search(value)):
            kind = "a NUL character" if unusable[0] == "\0" else "half a character (a surrogate)"
            raise self.invalid(node, f"the text contains {kind}", "remove it")
        return value

    def invalid(self, node: yaml.Node, reason: str, hint: str | None = None) -> InputFaults:
        place = f"{self.name}:{node.start_mark.line + 1}"
        return InputFaults(
            [
                Fault(
                    place=place, message=f"not valid YAML: {reason}", hint=hint, code="yaml-invalid"
                )
            ]
        )

    def flatten(self, node: yaml.MappingNode) -> None:
        """Replace the merge keys (``<<``) of ``node`` with the pairs that they mean.

        The mapping's own pairs come last and win. Of several merged mappings the earlier wins.
        PyYAML's own method has the wrong order in release 6.0.4.
        """
        merges = [(key, value) for key, value in node.value if key.tag == _MERGE]
        if not merges:
            return
        node.value = [pair for pair in node.value if pair[0].tag != _MERGE]
        merged: list[tuple[yaml.Node, yaml.Node]] = []
        for key, value in merges:
            mappings = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for mapping in reversed(mappings):
                if not isinstance(mapping, yaml.MappingNode):
                    raise self.invalid(key, "expected a mapping or list of mappings for merging")
                if mapping is node or id(mapping) in self.open:
                    raise self.invalid(key, "a mapping merges itself")
                self.flatten(mapping)
                merged += mapping.value
        node.value = merged + node.value

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[Hashable, Any]:
        written = {id(key) for key, _ in node.value if key.tag != _MERGE}
        own_nodes = self.own_keys.setdefault(id(node), written)
        self.flatten(node)
        result: dict[Hashable, Any] = {}
        keys: set[Hashable] = set()
        for key_node, value_node in node.value:
            key = self.construct(key_node)
            line = key_node.start_mark.line + 1
            if not isinstance(key, Hashable):
                message = "a key must be a plain word"
                self.faults.append(
                    Fault(place=f"{self.name}:{line}", message=message, code="key-invalid")
                )
                continue
            if key in keys and id(key_node) in own_nodes:
                first = self.lines[(*path, key)]
                message, hint = (
                    f"duplicate key '{key}' (first in line {first})",
                    "merge the two into one",
                )
                place, own_key = f"{self.name}:{line}", dotted((*path, key))
                self.faults.append(
                    Fault(
                        place=place, message=message, hint=hint, code="key-duplicate", key=own_key
                    )
                )
                key = key if path else DuplicateKey(key=key, line=line)
            if id(key_node) in own_nodes:
                keys.add(key)
            self.lines[(*path, key)] = line
            result[key] = self.value(value_node, (*path, key))
        return result
