# SPDX-License-Identifier: Apache-2.0
"""Tests of windows, of the mean over them, and of the figures that follow, by the published worked
examples.
"""
