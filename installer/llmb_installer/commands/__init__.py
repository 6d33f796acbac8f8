# SPDX-License-Identifier: Apache-2.0
"""The sub-commands of llmb-install: each module here holds one, called `command`; cli.COMMANDS lists them."""
