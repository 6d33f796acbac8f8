# SPDX-License-Identifier: Apache-2.0
"""Runs on disk and on a cluster: submits each exactly once, follows, reconciles, retries."""
