# SPDX-License-Identifier: Apache-2.0
"""The command `jobs`: the list, one run's page and log, and what is done with runs."""
