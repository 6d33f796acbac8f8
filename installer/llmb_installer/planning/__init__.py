# SPDX-License-Identifier: Apache-2.0
"""From answers to a plan: steps, costs, configuration, and the status of an installation."""
