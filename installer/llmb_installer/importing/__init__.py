# SPDX-License-Identifier: Apache-2.0
"""Imports what NVIDIA's exemplar-performance installed and measured, without changing its folder."""
