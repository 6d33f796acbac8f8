# SPDX-License-Identifier: Apache-2.0
"""Container images as squashfs files: built from a registry's layers or by enroot, checked, never half."""

from llmb_installer.images.build import build, changed
from llmb_installer.images.facts import ImageFacts, check, read_facts
from llmb_installer.images.settings import BuildSettings, Progress, Silent

__all__ = ["BuildSettings", "ImageFacts", "Progress", "Silent", "build", "changed", "check", "read_facts"]
