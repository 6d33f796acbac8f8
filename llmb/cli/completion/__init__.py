# SPDX-License-Identifier: Apache-2.0
"""Completion of words in shells: `engine` finds what is being written, `values` what it may be, `lookups` asks for it.

The script of a shell, which `scripts/` has, calls the command again for each word that is to be completed, with the
variable of ``engine.variable_of``.
"""
