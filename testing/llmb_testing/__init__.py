# SPDX-License-Identifier: Apache-2.0
"""Test kits: real services and fakes that a test starts, controls from code, and removes with their
folder.
"""
