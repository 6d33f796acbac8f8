# SPDX-License-Identifier: Apache-2.0
"""From a job list, or everything installed, to complete jobs: reads lists and configurations,
selects, configures, estimates. Pure but for reading files.
"""
