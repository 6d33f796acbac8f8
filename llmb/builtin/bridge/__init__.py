# SPDX-License-Identifier: Apache-2.0
"""Megatron-Bridge, the framework of NVIDIA's images since 2025: needs, recipe, launch."""
