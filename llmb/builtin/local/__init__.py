# SPDX-License-Identifier: Apache-2.0
"""The cluster type ``local``: this machine, where one supervisor for each user runs one job after
another.
"""
