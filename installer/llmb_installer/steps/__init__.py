# SPDX-License-Identifier: Apache-2.0
"""The steps of an installation: values with an identity, so that workloads share them; a module for each kind."""

from llmb_installer.hub import AssetStep
from llmb_installer.step import Context, Estimate, Facts, Kind, Progress, Step
from llmb_installer.venv.torch_source import TorchSource
from llmb_installer.venv.venv_step import VenvStep

__all__ = ["AssetStep", "Context", "Estimate", "Facts", "Kind", "Progress", "Step", "TorchSource", "VenvStep"]
