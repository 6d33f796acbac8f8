# SPDX-License-Identifier: Apache-2.0
"""python functions.py [FILE]: the functions of the installed Megatron-Bridge that return a
configuration of pretraining, a line for each module, as llmb/builtin/bridge/functions.txt has them.
"""

import importlib
import importlib.metadata
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

mocks = importlib.import_module("mocks")
PACKAGES = ("megatron.bridge.perf_recipes", "megatron.bridge.recipes")


def modules(package: str) -> Iterator[str]:
    """Every module below ``package`` that can be imported here, and the package."""
    yield package
    found = importlib.import_module(package)
    for item in pkgutil.walk_packages(found.__path__, f"{package}.", onerror=lambda _: None):
        yield item.name


def functions() -> Iterator[tuple[str, list[str]]]:
    """Each module with the functions that it defines, and that need no argument."""
    for module in sorted({name for package in PACKAGES for name in modules(package)}):
        try:
            names = vars(importlib.import_module(module))
        except ImportError:
            continue
        found = [
            name
            for name, value in names.items()
            if name.endswith("_config")
            and "_pretrain_" in name
            and not name.startswith("_")
            and inspect.isfunction(value)
            # packages above repeat them, and have some under another name
            and (value.__module__ == module or value.__name__ != name)
            and not any(
                parameter.default is parameter.empty
                and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
                for parameter in inspect.signature(value).parameters.values()
            )
        ]
        if found:
            yield module, sorted(found)


def text() -> str:
    """The content of the file."""
    version = importlib.metadata.version("megatron-bridge")
    lines = [f"{module}: {' '.join(names)}" for module, names in functions()]
    return "\n".join([f"# megatron-bridge {version}", *lines]) + "\n"


if __name__ == "__main__":
    mocks.install()
    content = text()
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(content, encoding="utf-8")
    else:
        print(content, end="")
