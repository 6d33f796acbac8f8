# SPDX-License-Identifier: Apache-2.0
"""Environments of Python: found interpreter, packages with hashes in a lock file, built beside the one in use."""
