# SPDX-License-Identifier: Apache-2.0
"""Container images as squashfs files: built from a registry's layers or with enroot, and checked."""
