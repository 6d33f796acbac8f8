# SPDX-License-Identifier: Apache-2.0
"""The training frameworks that llmb can launch: the defaults for hooks that a plugin does not define."""
