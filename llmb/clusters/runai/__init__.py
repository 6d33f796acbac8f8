# SPDX-License-Identifier: Apache-2.0
"""The cluster type ``runai``: workloads of NVIDIA Run:ai through its REST API; files and logs on a volume."""
