# SPDX-License-Identifier: Apache-2.0
"""Python environments: their tools, their packages in a lock file, verification and repair."""
