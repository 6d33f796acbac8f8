# SPDX-License-Identifier: Apache-2.0
"""The commands that submit: `submit-all`, `bulk` and `single`, and their one path."""
