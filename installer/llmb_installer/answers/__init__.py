# SPDX-License-Identifier: Apache-2.0
"""The answers that an installation is made from: what they may contain, and the layers they are read from."""
