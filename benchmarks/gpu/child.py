# SPDX-License-Identifier: Apache-2.0
"""python -m gpu.child MODULE CONTEXT [WORD...]: one part, in a process of its own."""

import importlib
import sys

from gpu.context import CannotRunError, Context
from gpu.runner import CANNOT_RUN


def main(module: str, context: str, *words: str) -> int:
    """Call `run` of the module. The exit code is CANNOT_RUN if this machine lacks something."""
    try:
        importlib.import_module(module).run(Context.from_text(context), *words)
    except CannotRunError as error:
        print(error)
        return CANNOT_RUN
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
