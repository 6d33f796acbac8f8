# SPDX-License-Identifier: Apache-2.0
"""The training frameworks that llmb itself can launch; what a plugin leaves out, they answer."""
