# SPDX-License-Identifier: Apache-2.0
"""The program of compute nodes. It needs Python 3.10 or newer and torch, nothing of llmb."""
