# SPDX-License-Identifier: Apache-2.0
"""Imports installations and runs of another tool, whose folder does not change."""
