# SPDX-License-Identifier: Apache-2.0
"""Carries plans out and shows them: steps side by side, progress, removal."""
