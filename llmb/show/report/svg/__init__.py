# SPDX-License-Identifier: Apache-2.0
"""The pictures of a report: pure functions from values to SVG, coloured by the page's classes."""
