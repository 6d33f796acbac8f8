# SPDX-License-Identifier: Apache-2.0
"""Writes the texts of a new plugin's files: pyproject.toml, a module, its data, a README and tests.

``templates/common`` is part of every kind of distribution, ``templates/<kind>`` of one. A benchmark
in YAML is no distribution.
"""

import importlib.util
import re
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from string import Template

from llmb import __version__
from llmb.core.values import dataclass
from llmb.errors import UsageError
from llmb.plugins.sources import OWN_DISTRIBUTIONS

WORKLOAD, PROGRAM, METRIC, CLUSTER, COMMAND = "workload", "program", "metric", "cluster", "command"
YAML, BRIDGE = "yaml", "bridge"
KINDS = (WORKLOAD, BRIDGE, YAML, PROGRAM, METRIC, CLUSTER, COMMAND)
WITH_WORKLOAD = (WORKLOAD, BRIDGE, YAML, PROGRAM, METRIC)
FILES = (YAML, BRIDGE)  # no distribution
# characters of a name: with more before and after, it is part of names of files, keys and packages
LONGEST = 60
# llmb's distributions without a plugin; their modules have the same names.
PARTS = frozenset({"llmb-installer", "llmb-testing", "llmb-workloads"})
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
    def distribution(self) -> str:
        return f"llmb-{self.plain}"

    @property
    def module(self) -> str:
        return f"llmb_{self.entry}"

    @property
    def key(self) -> str:
        """The key of its workload, or the name of its cluster type."""
        if self.kind == CLUSTER:
            return self.plain.replace(".", "-")
        return f"pretrain_{self.plain}" if self.kind in (WORKLOAD, BRIDGE) else self.plain


def plain_name(name: str) -> str:
    """Return the name of a new plugin without ``pretrain_``. Raises UsageError if it is invalid."""
    plain = re.sub(r"^pretrain(ing)?[-_.]?", "", name.lower())
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_.][a-z0-9]+)*", plain):
        message = f"'{name}' is not a valid name of a plugin"
        hint = (
            "begin with a letter; then letters, digits and single - _ . between them, as in acme-2b"
        )
        raise UsageError(message, hint=hint, code="name-invalid", value=name)
    if len(plain) > LONGEST:
        message = (
            f"the name of a plugin has at most {LONGEST} characters, and this one has {len(plain)}"
        )
        raise UsageError(message, hint="choose a shorter name", code="name-too-long", value=name)
    return plain


def check_new(names: Names) -> None:
    """Raise UsageError if the distribution or the module of a new plugin is llmb's or is installed.

    Installed beside the other one, each would hide or replace files of the other.
    """
    normalized = re.sub(r"[-_.]+", "-", names.distribution)
    is_own = normalized in OWN_DISTRIBUTIONS | PARTS
    conflict = (
        f"the distribution {names.distribution}"
        if is_own or _is_installed(names.distribution)
        else ""
    )
    if not conflict and importlib.util.find_spec(names.module) is not None:
        conflict = f"the module {names.module}"
    if conflict:
        message = f"{conflict} is {'a part of llmb' if is_own else 'already installed'}"
        hint = (
            "choose another name"
            if is_own
            else "choose another name, or uninstall the other one first"
        )
        raise UsageError(message, hint=hint, code="name-duplicate", value=names.plain)


def _is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def scaffold(plain: str, kind: str = WORKLOAD) -> dict[str, str]:
    """The files of a plugin of one of KINDS: text by path."""
    names = Names(plain=plain, kind=kind)
    words = {
        "name": plain,
        "distribution": names.distribution,
        "entry": names.entry,
        "module": names.module,
        "key": names.key,
        **_bounds(),
    }
    root = resources.files("llmb.check") / "templates"
    parts = (kind,) if kind in FILES else ("common", kind)
    texts = {path: text for part in parts for path, text in _texts(root / part)}
    written = {
        path.replace("MODULE", names.module).replace("ENTRY", names.entry): Template(
            text
        ).substitute(words)
        for path, text in texts.items()
    }
    return dict(sorted(written.items()))


def _bounds() -> dict[str, str]:
    """The releases of llmb that a new plugin is for: from this one to the next major one."""
    major, minor, *_ = __version__.split(".")
    return {"oldest": f"{major}.{minor}", "too_new": str(int(major) + 1)}


def _texts(folder: Traversable, above: str = "") -> list[tuple[str, str]]:
    """The templates below ``folder``: path and text."""
    templates = []
    for item in folder.iterdir():
        path = f"{above}{item.name}"
        if item.is_dir():
            templates += _texts(item, f"{path}/")
        elif path.endswith(_SUFFIX):
            templates.append((path.removesuffix(_SUFFIX), item.read_text(encoding="utf-8")))
    return templates
