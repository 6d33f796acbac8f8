# SPDX-License-Identifier: Apache-2.0
"""Results: what each run measured, and whether it counts."""
