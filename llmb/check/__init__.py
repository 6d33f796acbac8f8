# SPDX-License-Identifier: Apache-2.0
"""`plugins check` and `plugins new`: tries workloads, logs and cluster types, writes new ones."""
