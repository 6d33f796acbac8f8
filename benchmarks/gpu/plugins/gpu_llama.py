# SPDX-License-Identifier: Apache-2.0
"""Llama shapes that one GPU can train; gpu_llama.yaml has them. Nothing is installed for them."""

from pathlib import Path

from llmb import api


@api.hookimpl
def llmb_workload() -> api.Workload:
    """Sizes 1b and 3b for a GPU, small for a CPU, and nan, whose loss becomes NaN."""
    return api.read_workload(Path(__file__).with_name("gpu_llama.yaml"))


@api.hookimpl
def llmb_setup(workload: api.Workload, site: api.Site) -> api.Needs:
    """Need nothing: the ranks use a Python that has torch already."""
    return api.Needs(needs=())
