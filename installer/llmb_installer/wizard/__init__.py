# SPDX-License-Identifier: Apache-2.0
"""The wizard of llmb-install: what it asks in a terminal, in which order, and the answers."""
