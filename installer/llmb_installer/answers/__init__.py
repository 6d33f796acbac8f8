# SPDX-License-Identifier: Apache-2.0
"""The answers of an installation: their schema, and the layers they are read from."""
