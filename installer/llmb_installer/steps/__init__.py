# SPDX-License-Identifier: Apache-2.0
"""The steps of an installation: values with an identity, so that workloads share them; a module for each kind."""

from llmb_installer.steps.asset import AssetStep
from llmb_installer.steps.base import Context, Estimate, Facts, Kind, Progress, Step
from llmb_installer.steps.venv import VenvStep
from llmb_installer.torch_source import TorchSource

__all__ = ["AssetStep", "Context", "Estimate", "Facts", "Kind", "Progress", "Step", "TorchSource", "VenvStep"]
