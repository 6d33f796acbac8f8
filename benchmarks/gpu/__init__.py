# SPDX-License-Identifier: Apache-2.0
"""Measures llmb on the GPU of this machine, or small on its CPU: `make gpu` (docs/gpu.md)."""
