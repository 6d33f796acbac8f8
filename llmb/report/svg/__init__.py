# SPDX-License-Identifier: Apache-2.0
"""The pictures of a report: each a pure function from values to the text of an SVG, coloured by the page's classes."""
