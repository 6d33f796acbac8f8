# SPDX-License-Identifier: Apache-2.0
"""Tests of locks and files between users: processes that the system hides, umask 077, clocks that
differ.
"""
