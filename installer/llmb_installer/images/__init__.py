# SPDX-License-Identifier: Apache-2.0
"""Container images as squashfs files: built from a registry's layers or with enroot, and checked."""

from llmb_installer.images.build import build, changed
from llmb_installer.images.facts import ImageFacts, check, read_facts
from llmb_installer.images.squash import BuildSettings

__all__ = ["BuildSettings", "ImageFacts", "build", "changed", "check", "read_facts"]
