# SPDX-License-Identifier: Apache-2.0
"""The parameters of a job that `--set` and a job list's `params` may change."""

PARAMS = ("tp", "pp", "cp", "vp", "mbs", "gbs", "max_steps", "num_layers")

# What `--set` takes beside them, with its words; a switch of the same name, in a job list a key of its own.
CHOICES = {"tokenizer": ("null", "hub"), "fp8": ("delayed", "current")}
