# SPDX-License-Identifier: Apache-2.0
"""python -m gpu.flops RECIPE.json: counts the FLOPs of one sample with torch's own counter.

On the device "meta", which has shapes and no data: it takes no memory. Attention is plain matrix
products there, since the counter does not know every fused kernel.
"""

import json
import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from llmb_workloads.models import build
from llmb_workloads.torch_recipe import read_recipe

DEVICE = "meta"


def main(path: str) -> None:
    """Train on one sample while counting, forward and backward."""
    recipe = read_recipe(Path(path))
    model = build(recipe.model, DEVICE)
    model.set_attn_implementation("eager")
    length = recipe.model.seq_length
    tokens = torch.zeros((1, length), dtype=torch.long, device=DEVICE)
    # Given, since transformers would look at positions, which have no values here.
    mask = torch.zeros((1, 1, length, length), device=DEVICE)
    with FlopCounterMode(display=False) as counter:
        logits = model(input_ids=tokens, attention_mask=mask).logits
        cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    by_operation = {str(key): value for key, value in counter.get_flop_counts()["Global"].items()}
    print(json.dumps({"flops": counter.get_total_flops(), "by_operation": by_operation}))


if __name__ == "__main__":
    main(sys.argv[1])
