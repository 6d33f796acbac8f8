# SPDX-License-Identifier: Apache-2.0
"""Plugins of llmb itself, by the contract of all: the cluster types `local/` and `slurm/`, and the
frameworks `nemo/`, `bridge/` (Megatron-Bridge) and `torch/` for small sizes.
"""
