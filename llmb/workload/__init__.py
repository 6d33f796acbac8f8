# SPDX-License-Identifier: Apache-2.0
"""What a workload is: sizes, rows, model shape, GPU types, switches, published figures, what it needs installed."""
