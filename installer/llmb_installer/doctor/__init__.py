# SPDX-License-Identifier: Apache-2.0
"""The doctor: what this machine and its cluster have and lack for each cluster type, and the fixes."""

from llmb_installer.doctor.examine import Examination, examine
from llmb_installer.doctor.finding import Finding

__all__ = ["Examination", "Finding", "examine"]
