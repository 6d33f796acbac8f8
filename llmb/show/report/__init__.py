# SPDX-License-Identifier: Apache-2.0
"""The report on runs: one value, written as Markdown or as one HTML page without other files."""
