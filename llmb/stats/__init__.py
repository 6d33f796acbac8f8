# SPDX-License-Identifier: Apache-2.0
"""Statistics of step times: windows, means, intervals."""
