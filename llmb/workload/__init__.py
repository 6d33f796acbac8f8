# SPDX-License-Identifier: Apache-2.0
"""A workload: sizes, rows, model shape, GPU types, switches, published figures, and what it needs installed."""
