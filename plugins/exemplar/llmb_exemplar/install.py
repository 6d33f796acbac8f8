# SPDX-License-Identifier: Apache-2.0
"""Names of exemplar-performance in llmb's words."""

import re

# what releases 25.05 to 25.05.05 call Nemotron-4
_NEMOTRON = re.compile(r"(?i)(pretrain(?:ing)?_)?nemotron")


def name_in_llmb(name: str) -> str:
    """Return a workload's name in llmb: ``pretraining_nemotron`` is Nemotron-4."""
    return f"{name}4" if _NEMOTRON.fullmatch(name.strip()) else name
