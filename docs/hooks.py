# SPDX-License-Identifier: Apache-2.0
"""Writes hooks.md, the reference of the plugin contract, from llmb/hookspecs.py; --check: 1 if it
is stale.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from llmb import api, hookspecs
from llmb_testing.generated import write

PAGE = Path(__file__).with_name("hooks.md")

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


def main(arguments: Sequence[str]) -> int:
    """Write the page; with --check, only compare, and return 1 if it is stale."""
    return write({PAGE: page()}, "hooks", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
