# SPDX-License-Identifier: Apache-2.0
"""Writes the texts of a new plugin's files: pyproject.toml, a module, its data, a README and tests.

``templates/common`` is part of every kind of plugin, ``templates/<kind>`` of one.
"""

import re
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from string import Template

from llmb.errors import UsageError

WORKLOAD, PROGRAM, METRIC, CLUSTER, COMMAND = "workload", "program", "metric", "cluster", "command"
KINDS = (WORKLOAD, PROGRAM, METRIC, CLUSTER, COMMAND)
WITH_WORKLOAD = (WORKLOAD, PROGRAM, METRIC)
_SUFFIX = ".tmpl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names in a new plugin: ``plain`` is the one given, ``entry`` that of its entry point."""

    plain: str
    kind: str

    @property
    def entry(self) -> str:
        """The plain name as a Python identifier."""
        return re.sub("[-.]", "_", self.plain)

    @property
    def module(self) -> str:
        """The package of the plugin."""
        return f"llmb_{self.entry}"

    @property
    def key(self) -> str:
        """The key of its workload, or the name of its cluster type."""
        if self.kind == CLUSTER:
            return self.plain.replace(".", "-")
        return f"pretrain_{self.plain}" if self.kind == WORKLOAD else self.plain


def plain_name(name: str) -> str:
    """The name of a new plugin without ``pretrain_``. Raises UsageError for a name that is not valid."""
    plain = re.sub(r"^pretrain(ing)?[-_.]?", "", name.lower())
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_.][a-z0-9]+)*", plain):
        message = f"'{name}' is not a valid name of a plugin"
        hint = "begin with a letter; then letters, digits and single - _ . between them, as in acme-2b"
        raise UsageError(message, hint=hint, code="name-invalid", value=name)
    return plain


def scaffold(plain: str, kind: str = WORKLOAD) -> dict[str, str]:
    """The files of a plugin of one of KINDS: text by path."""
    names = Names(plain=plain, kind=kind)
    words = {"name": plain, "entry": names.entry, "module": names.module, "key": names.key}
    root = resources.files("llmb.plugins") / "templates"
    texts = {path: text for part in ("common", kind) for path, text in _texts(root / part)}
    written = {
        path.replace("MODULE", names.module).replace("ENTRY", names.entry): Template(text).substitute(words)
        for path, text in texts.items()
    }
    return dict(sorted(written.items()))


def _texts(folder: Traversable, above: str = "") -> list[tuple[str, str]]:
    """The templates below ``folder``: path and text."""
    found = []
    for item in folder.iterdir():
        path = f"{above}{item.name}"
        if item.is_dir():
            found += _texts(item, f"{path}/")
        elif path.endswith(_SUFFIX):
            found.append((path.removesuffix(_SUFFIX), item.read_text(encoding="utf-8")))
    return found
