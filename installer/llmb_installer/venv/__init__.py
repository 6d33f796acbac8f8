# SPDX-License-Identifier: Apache-2.0
"""Python environments: their tool and Python, packages with hashes in a lock file, verification and repair."""
