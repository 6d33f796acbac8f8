# SPDX-License-Identifier: Apache-2.0
"""The options of llmb-install and of its sub-commands, and a module for each sub-command."""
