# SPDX-License-Identifier: Apache-2.0
"""Container registries: checks whether images exist and may be read, and downloads them."""
