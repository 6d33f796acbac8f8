# SPDX-License-Identifier: Apache-2.0
"""Text input and output: YAML with line numbers, typed values, matching of names, tables."""
