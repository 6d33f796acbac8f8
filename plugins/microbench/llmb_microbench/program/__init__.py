# SPDX-License-Identifier: Apache-2.0
"""What compute nodes run: Python 3.10 or newer and torch, nothing of llmb."""
