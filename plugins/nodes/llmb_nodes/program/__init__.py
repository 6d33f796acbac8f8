# SPDX-License-Identifier: Apache-2.0
"""The program of a node check: asks facts of its node and measures its GPUs, without a network."""
