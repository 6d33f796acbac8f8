# SPDX-License-Identifier: Apache-2.0
"""Access to the machine: files, processes, locks, threads, HTTP, standard streams and secrets."""
