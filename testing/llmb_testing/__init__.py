# SPDX-License-Identifier: Apache-2.0
"""Kits for tests, ours and those of plugin authors: real parts in a folder of their own, at the hand of code."""
