# SPDX-License-Identifier: Apache-2.0
"""The command line `llmb-run`: `entry` begins, `app` builds the commands, each in a module or
folder of its own.
"""
