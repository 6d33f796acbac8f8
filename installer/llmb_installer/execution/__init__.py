# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of steps: here or on a node of the cluster, with their logs and what to do when they fail."""
