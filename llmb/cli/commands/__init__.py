# SPDX-License-Identifier: Apache-2.0
"""One module for each command, thin: what a command does lives in the packages beside `cli`."""
