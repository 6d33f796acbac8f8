# SPDX-License-Identifier: Apache-2.0
"""Archives: one file with the records, logs and configuration of runs, for a colleague or a vendor."""
