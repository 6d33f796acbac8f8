# SPDX-License-Identifier: Apache-2.0
"""The report on a set of runs: one value, written as Markdown or as one HTML page that needs nothing else."""
