# SPDX-License-Identifier: Apache-2.0
"""From requests to jobs: job lists, discovery, filters, every number of a job, estimates."""
