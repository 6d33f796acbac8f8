# SPDX-License-Identifier: Apache-2.0
"""What users write for the torch program and its precisions."""

NAME = "torch"  # the framework of workloads that have this program alone
DTYPES = ("bf16", "fp32")
