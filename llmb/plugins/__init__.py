# SPDX-License-Identifier: Apache-2.0
"""Finds, loads and calls plugins. Every call is guarded and every answer checked."""
