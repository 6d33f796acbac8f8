# SPDX-License-Identifier: Apache-2.0
"""Builds the steps of a plan in parallel, shows plans and progress, and removes workloads."""
