# SPDX-License-Identifier: Apache-2.0
"""python -m gpu.flops RECIPE.json: counts the FLOPs of one sample with torch's own counter."""

import json
import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from llmb_workloads.models import build
from llmb_workloads.torch_recipe import read_recipe


def main(path: str) -> None:
    """Train on one sample while counting, forward and backward."""
    recipe = read_recipe(Path(path))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build(recipe.model, device)
    tokens = torch.randint(recipe.model.vocab, (1, recipe.model.seq_length + 1), device=device)
    with (
        FlopCounterMode(display=False) as counter,
        torch.autocast(device, torch.bfloat16, enabled=recipe.dtype == "bf16"),
    ):
        logits = model(input_ids=tokens[:, :-1]).logits
        cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten()).backward()
    by_operation = {str(key): value for key, value in counter.get_flop_counts()["Global"].items()}
    print(json.dumps({"flops": counter.get_total_flops(), "by_operation": by_operation}))


if __name__ == "__main__":
    main(sys.argv[1])
