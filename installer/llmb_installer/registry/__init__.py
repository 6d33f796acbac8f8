# SPDX-License-Identifier: Apache-2.0
"""Container registries: checks whether images exist and may be read, and downloads them."""

from llmb_installer.registry.availability import check_image, check_images
from llmb_installer.registry.client import Registry
from llmb_installer.registry.credentials import Credentials, find_credentials
from llmb_installer.registry.manifests import Descriptor, Manifest, architecture_name, machine_name
from llmb_installer.registry.reference import (
    DOCKER_HUB,
    Reference,
    RegistrySettings,
    allows_plain_http,
    endpoint_of,
    mirrored,
)

__all__ = [
    "DOCKER_HUB",
    "Credentials",
    "Descriptor",
    "Manifest",
    "Reference",
    "Registry",
    "RegistrySettings",
    "allows_plain_http",
    "architecture_name",
    "check_image",
    "check_images",
    "endpoint_of",
    "find_credentials",
    "machine_name",
    "mirrored",
]
