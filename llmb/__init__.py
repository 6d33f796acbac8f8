# SPDX-License-Identifier: Apache-2.0
"""The runtime: turns a job list into jobs, follows them and judges what they measured."""

__version__ = "0.1.0"
