# SPDX-License-Identifier: Apache-2.0
"""The test kits of the distribution llmb-testing: ``llmb.testing.slurm`` is ``llmb_testing.slurm``,
and so for each.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_KITS = "llmb_testing"
__path__: list[str] = []  # makes this module a package, whose modules _Kits finds

try:
    importlib.import_module(_KITS)
except ModuleNotFoundError as missing:
    if missing.name != _KITS:
        raise
    raise ModuleNotFoundError(
        f"{__name__}: the test kits are in a distribution that is not installed; pip install"
        " llmb-testing",
        name=_KITS,
    ) from None


class _Kits(MetaPathFinder, Loader):
    """Imports a module of llmb_testing under its name in llmb.testing: one module, not a second
    copy.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.startswith(f"{__name__}.") else None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(
            _KITS + module.__name__.removeprefix(__name__)
        )


# first: the finder of files would load copies of the modules of llmb_testing.slurm
sys.meta_path.insert(0, _Kits())
