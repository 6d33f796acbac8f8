# SPDX-License-Identifier: Apache-2.0
"""The installer: builds the install directory of a cluster."""
