# SPDX-License-Identifier: Apache-2.0
"""From numbers to verdicts: references, repeats, comparisons, scaling, causes. Pure."""
