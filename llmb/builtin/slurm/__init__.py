# SPDX-License-Identifier: Apache-2.0
"""The cluster type ``slurm``: a batch script for each run, with pyxis or without a container."""
