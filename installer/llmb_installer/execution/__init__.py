# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of steps here or on a node, and finds the fix for what they print when they fail."""
