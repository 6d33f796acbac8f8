# SPDX-License-Identifier: Apache-2.0
"""Training logs: what a step line says, read into samples."""
