# SPDX-License-Identifier: Apache-2.0
"""The torch program for small sizes."""
