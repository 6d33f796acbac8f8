# SPDX-License-Identifier: Apache-2.0
"""NeMo 2: what it needs installed, its recipe, and its launch."""
