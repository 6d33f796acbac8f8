# SPDX-License-Identifier: Apache-2.0
"""Container registries: what they hold, whether we may have it, and fetching it whole."""

from llmb_installer.registry.availability import Checked, check_image, check_images
from llmb_installer.registry.client import Registry
from llmb_installer.registry.credentials import Credentials, find_credentials
from llmb_installer.registry.faults import ImageFaultError
from llmb_installer.registry.manifests import Descriptor, Manifest, architecture_name
from llmb_installer.registry.reference import Reference
from llmb_installer.registry.room import no_room
from llmb_installer.registry.settings import RegistrySettings

__all__ = [
    "Checked",
    "Credentials",
    "Descriptor",
    "ImageFaultError",
    "Manifest",
    "Reference",
    "Registry",
    "RegistrySettings",
    "architecture_name",
    "check_image",
    "check_images",
    "find_credentials",
    "no_room",
]
