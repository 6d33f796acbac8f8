# SPDX-License-Identifier: Apache-2.0
"""Loads plugins, checks them, and writes new ones."""
