# SPDX-License-Identifier: Apache-2.0
"""Pulls container images from registries into squashfs files, without root and without an engine.

``pull`` builds the file, ``look_up`` asks only the registry, and ``check`` compares a file with its
record. All errors are PullError. Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqshpull.build import pull
    from sqshpull.errors import PullError, PullInputError, PullStoppedError
    from sqshpull.manifests import ImageManifest
    from sqshpull.record import ImageRecord, check
    from sqshpull.reference import ImageReference
    from sqshpull.registry import look_up, look_up_all
    from sqshpull.settings import PullProgress, PullSettings, PullUser, SecretStore

__all__ = [
    "ImageManifest",
    "ImageRecord",
    "ImageReference",
    "PullError",
    "PullInputError",
    "PullProgress",
    "PullSettings",
    "PullStoppedError",
    "PullUser",
    "SecretStore",
    "check",
    "look_up",
    "look_up_all",
    "pull",
]
__version__ = VERSION = "0.1.0"

_MODULES = {
    "build": "pull",
    "errors": "PullError PullInputError PullStoppedError",
    "manifests": "ImageManifest",
    "record": "ImageRecord check",
    "reference": "ImageReference",
    "registry": "look_up look_up_all",
    "settings": "PullProgress PullSettings PullUser SecretStore",
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(import_module(f"sqshpull.{module}"), name)
    raise AttributeError(f"module 'sqshpull' has no attribute '{name}'")
