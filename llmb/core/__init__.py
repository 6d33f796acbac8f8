# SPDX-License-Identifier: Apache-2.0
"""Files, processes, locks, HTTP, YAML, tables and names: effects on this machine, no benchmarks."""
