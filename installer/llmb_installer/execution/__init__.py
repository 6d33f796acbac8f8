# SPDX-License-Identifier: Apache-2.0
"""Runs programs of steps here or on a node, and finds the fix for what they print on failure."""
