# SPDX-License-Identifier: Apache-2.0
"""The install directory: finding it, its record of finished steps, and what is left over."""
