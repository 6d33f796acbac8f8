# SPDX-License-Identifier: Apache-2.0
"""The doctor: what this machine and its cluster have and lack for each cluster type, with fixes."""
