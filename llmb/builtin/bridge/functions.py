# SPDX-License-Identifier: Apache-2.0
"""Checks a function's name against those of Megatron-Bridge, without the library.

functions.txt has the functions of 0.6.0 that return a configuration of pretraining.
tests/real_bridge/functions.py writes it.
"""

from functools import cache
from pathlib import Path

from llmb.core.names import suggest
from llmb.core.versions import minor_of
from llmb.errors import UsageError

FILE = Path(__file__).with_name("functions.txt")
_LIBRARY = "megatron.bridge."


@cache
def recorded() -> tuple[str, dict[str, tuple[str, ...]]]:
    """Return the version of the library, and its functions by module."""
    first, *lines = FILE.read_text("utf-8").splitlines()
    modules = (line.partition(": ") for line in lines)
    return first.rpartition(" ")[2], {module: tuple(names.split()) for module, _, names in modules}


def check_function(function: str, version: str, label: str) -> None:
    """Raise UsageError for a function that ``version`` of the library does not have.

    A function of another package, or of a version without a record, may exist. A package has the
    functions of its modules.
    """
    module, _, name = function.partition(":")
    known_version, modules = recorded()
    if not module.startswith(_LIBRARY) or minor_of(version) != minor_of(known_version):
        return
    below = [
        names
        for module_name, names in modules.items()
        if module_name == module or module_name.startswith(f"{module}.")
    ]
    if any(name in names for names in below):
        return
    raise UsageError(
        f"{label}: megatron-bridge {version} has no {function}",
        hint=(
            suggest(name, sorted({function for names in below for function in names}))
            if below
            else suggest(module, list(modules))
        ),
        code="function-unknown",
        key="bridge.function",
        value=function,
    )
