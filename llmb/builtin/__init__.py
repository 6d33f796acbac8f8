# SPDX-License-Identifier: Apache-2.0
"""What llmb ships through its own contract: the cluster types `local/` and `slurm/`, and the
frameworks `nemo/`, `bridge/` (Megatron-Bridge) and `torch/` for small sizes.
"""
