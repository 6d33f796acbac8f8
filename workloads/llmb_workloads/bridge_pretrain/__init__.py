# SPDX-License-Identifier: Apache-2.0
"""Trains with Megatron-Bridge from a frozen recipe."""
