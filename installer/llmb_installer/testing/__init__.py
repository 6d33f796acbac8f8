# SPDX-License-Identifier: Apache-2.0
"""Kits for tests of the installer: images made entry by entry, and registries to push them to."""
