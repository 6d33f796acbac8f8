# SPDX-License-Identifier: Apache-2.0
"""Behaviour that cluster types share: scripts, rank commands, checks, staged programs."""
