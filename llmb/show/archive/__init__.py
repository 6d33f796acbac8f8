# SPDX-License-Identifier: Apache-2.0
"""Archives: one file with records, logs and configuration of runs, for colleagues and vendors."""
