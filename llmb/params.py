# SPDX-License-Identifier: Apache-2.0
"""The parameters of a job that `--set` and a job list's `params` may change."""

PARAMS = ("tp", "pp", "cp", "vp", "mbs", "gbs", "max_steps", "num_layers")
