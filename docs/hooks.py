# SPDX-License-Identifier: Apache-2.0
"""Writes hooks.md, the reference of the plugin contract, from llmb/hookspecs.py, and the tables of
cluster-types.md from cluster_fields.yaml; --check: 1 if one is stale.
"""

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from llmb import api, hookspecs
from llmb.core import yamlfile
from llmb_testing.generated import write

PAGE = Path(__file__).with_name("hooks.md")
CLUSTERS = Path(__file__).with_name("cluster-types.md")
MEANINGS = Path(__file__).with_name("cluster_fields.yaml")
BLOCK = re.compile(r"(<!-- fields of (\w+)[^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)

HEAD = """\
# Hooks

<!-- Written by `python docs/hooks.py` from llmb/hookspecs.py: edit that. -->

The contract between llmb and its plugins, version {contract}. A hook is a function of the plugin's
module, marked with `@api.hookimpl`; it may take fewer arguments. [Write a
plugin](write-a-plugin.md#the-hooks) has an example of each, and [the plugin
contract](plugin-contract.md) what happens if one fails.
"""
NAMES = """\
## llmb.api

Plugins import only this module. Each name is loaded when it is used.
"""


def section(name: str, hook: Callable[..., Any]) -> str:
    """A hook: its signature and its docstring."""
    own = str(inspect.signature(hook)).replace("'", "")
    lines = (" ".join(paragraph.split()) for paragraph in str(inspect.getdoc(hook)).split("\n\n"))
    text = "\n\n".join(lines).replace("``", "`")
    return f"## {name}\n\n```python\ndef {name}{own}\n```\n\n{text}\n"


def page() -> str:
    """The whole page."""
    hooks = [(name, hook) for name, hook in vars(hookspecs).items() if name.startswith("llmb_")]
    names = ", ".join(f"`{name}`" for name in sorted(api.__all__, key=str.lower))
    parts = [
        HEAD.format(contract=hookspecs.CONTRACT),
        *(section(*one) for one in hooks),
        f"{NAMES}\n{names}.\n",
    ]
    return "\n".join(parts)


def table(name: str, key: str, names: Sequence[str]) -> str:
    """The rows of ``name``, whose fields are ``names``.

    Raises ValueError if cluster_fields.yaml lacks one of them, or has another one.
    """
    data = yamlfile.load(MEANINGS).data
    meanings = data[key]
    if wrong := sorted(set(names) ^ {*meanings, *data["others"][key]}):
        raise ValueError(f"docs/cluster_fields.yaml and {name} differ in: {', '.join(wrong)}")
    rows = [f"| `{field}` | {meaning} |" for field, meaning in meanings.items()]
    return "\n".join([f"| {name} | meaning |", "|---|---|", *rows]) + "\n"


def cluster_tables() -> dict[str, str]:
    """The tables of cluster-types.md by their names."""
    record = api.RunRecord
    properties = [name for name, own in vars(record).items() if isinstance(own, property)]
    launch = table(
        "field of a launch", "launch", [own.name for own in dataclasses.fields(api.Launch)]
    )
    fields = table("field of a run", "record", [own.name for own in dataclasses.fields(record)])
    more = table("property of a run", "properties", properties)
    return {"Launch": launch, "RunRecord": f"{fields}\n{more}"}


def clusters_page() -> str:
    """The page of cluster types, with its tables."""
    tables = cluster_tables()
    return BLOCK.sub(
        lambda block: f"{block[1]}{tables[block[2]]}{block[3]}", CLUSTERS.read_text("utf-8")
    )


def main(arguments: Sequence[str]) -> int:
    """Write the pages; with --check, only compare, and return 1 if one is stale."""
    return write({PAGE: page(), CLUSTERS: clusters_page()}, "hooks", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
