# SPDX-License-Identifier: Apache-2.0
"""Effects on this machine: files, processes, locks, threads, standard streams and secrets."""
