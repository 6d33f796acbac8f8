# SPDX-License-Identifier: Apache-2.0
"""The kinds of installation steps, and the steps for what workloads need."""
