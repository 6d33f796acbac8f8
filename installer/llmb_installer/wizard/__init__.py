# SPDX-License-Identifier: Apache-2.0
"""The conversation of llmb-install in a terminal: what it asks, in which order, and what comes of it."""

from llmb_installer.wizard.conversation import Asked, ask

__all__ = ["Asked", "ask"]
