# SPDX-License-Identifier: Apache-2.0
"""Text in and out: YAML with its lines, typed values, names and their nearest spellings, tables."""
