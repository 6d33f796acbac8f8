# SPDX-License-Identifier: Apache-2.0
"""Imports installations and runs of NVIDIA's exemplar-performance. Its folder does not change."""
