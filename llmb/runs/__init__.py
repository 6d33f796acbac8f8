# SPDX-License-Identifier: Apache-2.0
"""Runs on disk: their records, where they are, and what was last seen of them."""
