# SPDX-License-Identifier: Apache-2.0
"""Holds answers against the cluster they are for, before anything is fetched."""
