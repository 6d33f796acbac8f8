# SPDX-License-Identifier: Apache-2.0
"""Completion of words in shells, also of `llmb-install`.

`engine` finds the parameter that is being written, `values` its possible values, and `lookups` asks
this machine for them. A shell's script in `scripts/` calls the command again for each word to be
completed, with the variable of ``engine.variable_of``.
"""
