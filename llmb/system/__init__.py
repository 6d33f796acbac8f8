# SPDX-License-Identifier: Apache-2.0
"""The machine below: files, processes, locks, several things at a time, and which names are secrets."""
